// One micro-batch of a rank: the same samples in every program and for every sharding. Torch room.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "harness/workload/model_settings.h"

namespace harness {

// Targets are as many as the model's rows of logits. By family:
//   decoders, t5          ids [batch, seq]; targets [batch, seq], the ids one step on
//   embedding-classifier  ids [batch, seq]; a class a sample, from the token behind its last one
//   mlp                   features [batch, seq, dim] in [-1, 1); a class a row, from the ids one step on
//   graph                 what the file's inputs say, in its order, in `graph`; the model makes the loss itself
struct Batch {
  at::Tensor inputs, targets;
  std::vector<at::Tensor> graph;
};
// `first_sample`: global number of the batch's first sample. Meta: shapes alone.
Batch make_batch(const ModelSettings& m, std::uint64_t seed, std::int64_t first_sample, std::int64_t batch, bool meta);

}  // namespace harness
