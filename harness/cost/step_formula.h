// A training step of a decoder in closed form: what published tables of step times are compared with, and what the five
// constants of a GPU are fitted by. One unit for each block, prefetch of one unit, gradients reduced every micro-batch.
//
//   block forward    products/efficiency + attention + passes*T*d*2 B of memory, and once per unit and pass
//   block backward   both gradients of each product, 2.5 x attention, twice the memory; with checkpointing a share of
//                    one more forward
//   an eager llama   memory passes of its own on top, counted from what its kernels read and write (eager_passes in the
//   source):
//                    the constants come from blocks with layer norm in one kernel, no rotary positions and a plain gelu
//   beside it        all-gather (backward: and reduce-scatter) of a block: x + contention*min(k, x), at least k
#pragma once
#include <string>

#include "harness/cost/cost_model.h"

namespace harness {

// Of one GPU, fitted.
struct StepConstants {
  double gemm_efficiency = 1;
  double attention_tflops = 100;
  double passes = 40;  // over a block's activations in forward, by kernels that move memory
  double unit_pass_us = 200;
  double contention = 1;
};

struct StepCase {
  std::string family;  // "mpt" (feed-forward of two products, learned positions, tied head), or "llama"
  double layers = 0, dim = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, seq = 0;
  int world = 1;
  int shard_group = 0;      // hybrid; 0: the world
  double reduce_bytes = 4;  // of an element
  bool zero2 = false;       // parameters stay for backward
  double recompute = 0;     // share of a forward: 0 none, 0.35 selective, 1 full
  double micro_batch = 1, accumulate = 1;
  bool compiled = false;  // a compiler joins element-wise kernels
};

struct StepEstimate {
  double seconds = 0;
  double block_parameters = 0, parameters = 0;
};

StepEstimate estimate_step(const StepCase& c, const CostModel& model, const StepConstants& k);

}  // namespace harness
