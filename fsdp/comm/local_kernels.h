// Sums over ranks' buffers in host memory. fp32 arithmetic, in rank order, a cache block at a time: one pass over
// memory for any number of ranks, the same bits whatever the instruction set.
#pragma once
#include "fsdp/core/types.h"

namespace fsdp {

// out[i] = (accumulate ? out[i] : 0) + ((addend ? addend[i] : 0) + scale * (in[0][i] + in[1][i] + ...)), rounded once
// to out_dtype (nearest even).
// `out` may be one of the inputs if the dtypes are equal; other overlaps are not allowed.
struct RankSum {
  const void* const* in = nullptr;  // one per rank
  int ranks = 0;
  Dtype in_dtype = Dtype::kFloat32;
  void* out = nullptr;
  Dtype out_dtype = Dtype::kFloat32;
  Count count = 0;
  float scale = 1.0f;
  bool accumulate = false;
  const float* addend = nullptr;
};
void sum_ranks(const RankSum& sum);

float bfloat16_to_float(std::uint16_t bits);
std::uint16_t float_to_bfloat16(float value);  // nearest even; a NaN stays a NaN

}  // namespace fsdp
