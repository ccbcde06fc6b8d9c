#define SHARDSCOPE_ISA baseline
#define SHARDSCOPE_LANES 4
#include "fsdp/module/kernels_impl.h"
