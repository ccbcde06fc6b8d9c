// One entry per kernel that is compiled for several instruction sets; see kernels_impl.h.
#pragma once
#include "fsdp/module/kernels.h"

namespace fsdp::kernels {

inline constexpr Index kGemmDepth = 256;    // k of one packed block
inline constexpr Index kGemmColumns = 512;  // n of one packed block
inline constexpr Index kGemmPanel = 16;     // most rows of one micro tile
inline constexpr Index kGemmScratch = kGemmDepth * (kGemmColumns + 32) + kGemmPanel * kGemmDepth;  // floats
inline constexpr Index kAttentionRows = 64;  // queries of one block

// Floats of scratch that an attention (backward) takes besides the GEMM's.
inline Index attention_scratch(const AttentionShape& s) { return 2 * kAttentionRows * s.keys + kAttentionRows; }

struct Table {
  void (*gemm)(bool, bool, Index, Index, Index, const float*, Index, const float*, Index, float*, Index, bool,
               float* scratch);
  void (*add_rows)(float*, const float*, Index, Index);
  void (*column_sums)(const float*, Index, Index, float*);
  void (*add)(float*, const float*, Index);
  void (*rms_norm)(const float*, const float*, Index, Index, float, float*, float*);
  void (*rms_norm_backward)(const float*, const float*, const float*, const float*, Index, Index, float*, float*);
  void (*layer_norm)(const float*, const float*, const float*, Index, Index, float, float*, float*, float*);
  void (*layer_norm_backward)(const float*, const float*, const float*, const float*, const float*, Index, Index,
                              float*, float*, float*);
  void (*rope)(const float*, const float*, const float*, const RopeShape&, bool, float*);
  void (*swiglu)(const float*, const float*, Index, float*);
  void (*swiglu_backward)(const float*, const float*, const float*, Index, float*, float*);
  void (*gelu)(const float*, Index, bool, float*);
  void (*gelu_backward)(const float*, const float*, Index, bool, float*);
  void (*attention)(const AttentionShape&, const HeadView&, const HeadView&, const HeadView&, const float* bias,
                    const HeadView&, float*, float* scratch, float* gemm_scratch);
  void (*attention_backward)(const AttentionShape&, const HeadView&, const HeadView&, const HeadView&, const HeadView&,
                             const float* bias, const HeadView&, const float*, const HeadView&, const HeadView&,
                             const HeadView&, float* d_bias, float* scratch, float* gemm_scratch);
  float (*cross_entropy)(const float*, const Index*, Index, Index, float*);
  void (*cross_entropy_backward)(float, const float*, const Index*, const float*, Index, Index, float*);
  double (*adamw)(const AdamW&, Index, const float*, float*, float*, float*);
  double (*sgd)(float, Index, const float*, float*);
  double (*square_sum)(const float*, Index);
  void (*to_float)(const std::uint16_t*, Index, float*);
  void (*to_bfloat16)(const float*, Index, std::uint16_t*);
  void (*uniform_weights)(std::uint64_t, std::uint64_t, Index, Index, float*);
};

}  // namespace fsdp::kernels
