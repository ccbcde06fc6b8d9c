#include "fsdp/comm/local_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

// Function multiversioning resolves before a sanitizer's runtime is up; there the baseline has to do.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define SHARDSCOPE_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define SHARDSCOPE_CLONES
#endif

namespace fsdp {
namespace {

constexpr Count kBlock = 2048;  // elements: sum and one input stay in the first-level cache

inline float widen(float v) { return v; }
inline float widen(std::uint16_t v) { return std::bit_cast<float>(std::uint32_t{v} << 16); }

inline std::uint16_t round_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

inline void narrow(float v, float& to) { to = v; }
inline void narrow(float v, std::uint16_t& to) { to = round_to_bfloat16(v); }

// The shapes that carry a training step, one pass each: two ranks in fp32.
SHARDSCOPE_CLONES void sum_two(const float* __restrict a, const float* b, float* out, float scale, bool accumulate,
                               Count n) {
  if (accumulate) {
    for (Count i = 0; i < n; ++i) out[i] += scale * (a[i] + b[i]);
  } else {
    for (Count i = 0; i < n; ++i) out[i] = scale * (a[i] + b[i]);
  }
}

SHARDSCOPE_CLONES void add_float(float* __restrict sum, const float* __restrict in, Count n) {
  for (Count i = 0; i < n; ++i) sum[i] += in[i];
}
SHARDSCOPE_CLONES void add_bfloat16(float* __restrict sum, const std::uint16_t* __restrict in, Count n) {
  for (Count i = 0; i < n; ++i) sum[i] += widen(in[i]);
}
SHARDSCOPE_CLONES void widen_bfloat16(float* __restrict sum, const std::uint16_t* __restrict in, Count n) {
  for (Count i = 0; i < n; ++i) sum[i] = widen(in[i]);
}
void add(float* sum, const float* in, Count n) { add_float(sum, in, n); }
void add(float* sum, const std::uint16_t* in, Count n) { add_bfloat16(sum, in, n); }
void set(float* sum, const float* in, Count n) { std::memcpy(sum, in, static_cast<std::size_t>(n) * sizeof *sum); }
void set(float* sum, const std::uint16_t* in, Count n) { widen_bfloat16(sum, in, n); }

SHARDSCOPE_CLONES void join(float* __restrict sum, const float* __restrict addend, float scale, Count n) {
  for (Count i = 0; i < n; ++i) sum[i] = addend[i] + scale * sum[i];
}

SHARDSCOPE_CLONES void finish_float(const float* __restrict sum, float* __restrict out, float scale, bool accumulate,
                                    Count n) {
  if (accumulate) {
    for (Count i = 0; i < n; ++i) out[i] += scale * sum[i];
  } else {
    for (Count i = 0; i < n; ++i) out[i] = scale * sum[i];
  }
}
SHARDSCOPE_CLONES void finish_bfloat16(const float* __restrict sum, std::uint16_t* __restrict out, float scale,
                                       bool accumulate, Count n) {
  if (accumulate) {
    for (Count i = 0; i < n; ++i) narrow(widen(out[i]) + scale * sum[i], out[i]);
  } else {
    for (Count i = 0; i < n; ++i) narrow(scale * sum[i], out[i]);
  }
}
void finish(const float* sum, float* out, float scale, bool accumulate, Count n) {
  finish_float(sum, out, scale, accumulate, n);
}
void finish(const float* sum, std::uint16_t* out, float scale, bool accumulate, Count n) {
  finish_bfloat16(sum, out, scale, accumulate, n);
}

template <class In, class Out>
void sum_blocks(const RankSum& s) {
  auto* out = static_cast<Out*>(s.out);
  alignas(64) float block[kBlock];
  for (Count at = 0; at < s.count; at += kBlock) {
    const Count n = std::min(kBlock, s.count - at);
    set(block, static_cast<const In*>(s.in[0]) + at, n);
    for (int r = 1; r < s.ranks; ++r) add(block, static_cast<const In*>(s.in[r]) + at, n);
    if (s.addend != nullptr) join(block, s.addend + at, s.scale, n);
    finish(block, out + at, s.addend != nullptr ? 1.0f : s.scale, s.accumulate, n);
  }
}

}  // namespace

void sum_ranks(const RankSum& s) {
  const bool in_float = s.in_dtype == Dtype::kFloat32, out_float = s.out_dtype == Dtype::kFloat32;
  if (in_float && out_float && s.ranks == 2 && s.addend == nullptr && s.out != s.in[0] && s.out != s.in[1]) {
    return sum_two(static_cast<const float*>(s.in[0]), static_cast<const float*>(s.in[1]), static_cast<float*>(s.out),
                   s.scale, s.accumulate, s.count);
  }
  if (in_float && out_float) return sum_blocks<float, float>(s);
  if (in_float) return sum_blocks<float, std::uint16_t>(s);
  if (out_float) return sum_blocks<std::uint16_t, float>(s);
  sum_blocks<std::uint16_t, std::uint16_t>(s);
}

float bfloat16_to_float(std::uint16_t bits) { return widen(bits); }
std::uint16_t float_to_bfloat16(float value) { return round_to_bfloat16(value); }

}  // namespace fsdp
