#define SHARDSCOPE_ISA avx2
#define SHARDSCOPE_LANES 8
#include "fsdp/module/kernels_impl.h"
