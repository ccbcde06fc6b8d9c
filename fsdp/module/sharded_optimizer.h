// ShardedOptimizer: AdamW or SGD on each unit's flat shard, fp32 state beside it.
#pragma once
#include <vector>

#include "fsdp/module/fully_shard.h"
#include "fsdp/module/ops.h"

namespace fsdp {

enum class OptimizerKind : std::uint8_t { kAdamW, kSgd };

class ShardedOptimizer {
 public:
  // The state is allocated here, counted as optimizer state of the current meter.
  ShardedOptimizer(ShardedModel& model, OptimizerKind kind, const ops::AdamWOptions& adamw = {}, double sgd_lr = 1e-3);

  // After Scheduler::end_backward(). Begins and ends the scheduler's optimizer phase, which releases the gradients.
  // Returns this rank's part of the squared global gradient norm, from before the update.
  double step();

 private:
  struct State {
    at::Tensor m, v;
  };
  ShardedModel& model_;
  OptimizerKind kind_;
  ops::AdamWOptions adamw_;
  double sgd_lr_;
  std::int64_t steps_ = 0;
  std::vector<State> states_;
};

}  // namespace fsdp
