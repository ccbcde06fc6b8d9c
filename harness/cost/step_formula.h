// A training step of a decoder in closed form: what published tables of step times and pairs of settings are compared
// with, and what the constants of a GPU are fitted by. Gradients are reduced every micro-batch.
//
//   block forward    products/efficiency + attention + passes*T*d*2 B of memory + its kernels, each with its gap
//   block backward   both gradients of each product, 2.5 x attention, twice the memory, 1.5 x the kernels; with
//                    checkpointing a share of one more forward; the whole of one less its last product, whose result
//                    backward does not need (PyTorch's checkpoint stops before it)
//   a unit           its blocks; its gradients pass through memory: copy_traffic x (2 + bytes it is reduced in)
//   an eager llama   memory passes of its own on top, counted from what its kernels read and write (eager_passes in the
//                    source): the constants come from blocks with layer norm in one kernel, no rotary positions and a
//                    plain gelu
//   beside a unit    all-gather (backward: and reduce-scatter) of the next: x + contention*min(k, x), at least k
//   without prefetch x + k
#pragma once
#include <string>

#include "harness/cost/cost_model.h"

namespace harness {

// Of one GPU, fitted.
struct StepConstants {
  double gemm_efficiency = 1;
  double attention_tflops = 100, attention_backward_tflops = 100;
  double passes = 40;       // over a block's activations in forward, by kernels that move memory
  double kernel_us = 8;     // of each kernel beside its work
  double copy_traffic = 7;  // over what a unit's gradients need to be copied to their reduction once
  double boundary_us = 0;   // of a step, beside its work: of the program that was measured, no cost of the device
  double contention = 0.2;
  double jitter = 0;  // given, not fitted
};
struct StepCase {
  std::string family;  // "mpt" (feed-forward of two products, learned positions, tied head), or "llama"
  double layers = 0, dim = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, seq = 0;
  int world = 1;
  int shard_group = 0;      // hybrid; 0: the world
  double reduce_bytes = 4;  // of an element
  bool zero2 = false;       // parameters stay for backward
  double recompute = 0;     // share of the blocks that are computed again, each less its last product
  double again = 0;         // share of a block's forward that a choice of operators computes again
  double micro_batch = 1, accumulate = 1;
  bool compiled = false;   // a compiler joins element-wise kernels
  double slowest = 0;      // expected_maximum(world): by how many standard deviations the slowest rank is late
  double unit_blocks = 1;  // blocks of a unit; 0: the whole model is one
  bool forward_prefetch = true, backward_prefetch = true;
};

struct StepEstimate {
  double seconds = 0;
  double block_parameters = 0, parameters = 0;
};

StepEstimate estimate_step(const StepCase& c, const CostModel& model, const StepConstants& k);

}  // namespace harness
