// ShardedOptimizer: AdamW or SGD on each unit's flat shard, fp32 state beside it, optional clipping to a global norm.
#pragma once
#include <optional>
#include <vector>

#include "fsdp/core/optimizer_kind.h"
#include "fsdp/module/fully_shard.h"
#include "fsdp/module/ops.h"

namespace fsdp {

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  ops::AdamWOptions adamw;
  double sgd_lr = 1e-3;
  // Gradients are taken times min(1, clip / (norm + 1e-6)), the norm that of all gradients on all ranks, each counted
  // once: one all-reduce of one element in the world.
  std::optional<double> clip;
};

class ShardedOptimizer {
 public:
  // The state is allocated here, counted as optimizer state of the current meter. Device and collectives are the
  // model's.
  ShardedOptimizer(ShardedModel& model, const OptimizerOptions& options, Device& device, Collectives& collectives);

  // After Scheduler::end_backward(). Begins and ends the scheduler's optimizer phase, which releases the gradients.
  // Returns this rank's part of the squared global gradient norm, from before clipping and update.
  double step();

  // Of a unit, for saving and loading: as long as its gradients; empty for SGD and for frozen units.
  struct State {
    at::Tensor m, v;
  };
  const State& state(UnitId unit) const { return states_.at(static_cast<std::size_t>(unit)); }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t n) { steps_ = n; }

 private:
  // Elements that are updated together: neighbours in the parameters and in the gradients.
  struct Run {
    Count parameter_at = 0, gradient_at = 0, count = 0;
  };
  std::vector<Run> runs_of(UnitId unit) const;
  double update(UnitId unit, double gradient_scale);
  double square_sum() const;
  double clip_scale(double square_sum);

  ShardedModel& model_;
  OptimizerOptions options_;
  Device& device_;
  Collectives& collectives_;
  std::int64_t steps_ = 0;
  std::vector<State> states_;
  std::vector<std::vector<Run>> runs_;
  at::Tensor norm_;  // of the all-reduce; undefined without clipping
};

}  // namespace fsdp
