// The bodies behind kernels.h, compiled once per instruction set: each of kernels_{avx512,avx2,baseline}.cc defines
// SHARDSCOPE_ISA and SHARDSCOPE_LANES and includes this file, with its own compiler flags. Nothing here may emit a
// function that the linker could share between the three (no standard containers or algorithms, all static or in the
// namespace of the instruction set): code for AVX-512 must not run where there is none.
#pragma once
#include <cstdint>

#include "fsdp/module/kernels.h"
#include "fsdp/module/kernels_table.h"

namespace fsdp::kernels::SHARDSCOPE_ISA {

constexpr int kLanes = SHARDSCOPE_LANES;
using Vec = float __attribute__((vector_size(4 * SHARDSCOPE_LANES)));
using VecU = float __attribute__((vector_size(4 * SHARDSCOPE_LANES), aligned(4), may_alias));
using Mask = std::int32_t __attribute__((vector_size(4 * SHARDSCOPE_LANES)));

static inline Vec load(const float* p) { return *reinterpret_cast<const VecU*>(p); }
static inline void store(float* p, Vec v) { *reinterpret_cast<VecU*>(p) = v; }
static inline float bits_to_float(std::int32_t i) { return __builtin_bit_cast(float, i); }

// e^x by 2^n * polynomial on [-ln2/2, ln2/2]; relative error below 3e-7.
// Below -87 the value stays that of -87, 1.6e-38; no branch, so that loops vectorise.
static inline float fast_exp(float x) {
  x = x > 88.0f ? 88.0f : x;
  const float clipped = x < -87.0f ? -87.0f : x;
  // Conversion, not a magic addend: sums may be reassociated here.
  const std::int32_t n = static_cast<std::int32_t>(clipped * 1.44269504088896341f + (clipped < 0.0f ? -0.5f : 0.5f));
  const float r = clipped - static_cast<float>(n) * 0.693147180559945309f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const float power = bits_to_float((n + 127) << 23);
  return p * power;
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

// erf by Abramowitz and Stegun 7.1.26 has 1.5e-7 absolute error: as good as fp32 around the values that gelu meets.
static inline float fast_erf(float x) {
  const float a = x < 0 ? -x : x;
  const float t = 1.0f / (1.0f + 0.3275911f * a);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float y = 1.0f - p * t * fast_exp(-a * a);
  return x < 0 ? -y : y;
}

void gemm(bool ta, bool tb, Index m, Index n, Index k, const float* a, Index lda, const float* b, Index ldb, float* c,
          Index ldc, bool accumulate, float* scratch);

}  // namespace fsdp::kernels::SHARDSCOPE_ISA

#include "fsdp/module/kernels_attention.inc"
#include "fsdp/module/kernels_gemm.inc"
#include "fsdp/module/kernels_rows.inc"

namespace fsdp::kernels::SHARDSCOPE_ISA {
extern const Table kTable;
const Table kTable = {
    gemm,
    add_rows,
    column_sums,
    add,
    rms_norm,
    rms_norm_backward,
    layer_norm,
    layer_norm_backward,
    rope,
    swiglu,
    swiglu_backward,
    gelu,
    gelu_backward,
    attention,
    attention_backward,
    cross_entropy,
    cross_entropy_backward,
    adamw,
    sgd,
    square_sum,
    to_float,
    to_bfloat16,
    uniform_weights,
};
}  // namespace fsdp::kernels::SHARDSCOPE_ISA
