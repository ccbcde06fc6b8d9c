#define SHARDSCOPE_ISA avx512
#define SHARDSCOPE_LANES 16
#include "fsdp/module/kernels_impl.h"
