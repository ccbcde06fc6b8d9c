#include "fsdp/module/sharded_optimizer.h"

#include "fsdp/core/errors.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/torch.h"

namespace fsdp {

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, OptimizerKind kind, const ops::AdamWOptions& adamw,
                                   double sgd_lr)
    : model_(model), kind_(kind), adamw_(adamw), sgd_lr_(sgd_lr) {
  if (kind_ != OptimizerKind::kAdamW) return;
  const CategoryScope scope(MemoryCategory::kOptimizer);
  for (UnitId u = 0; u < model_.unit_count(); ++u) {
    const at::Tensor& p = model_.shard(u).parameters;
    states_.push_back({at::zeros(p.sizes(), p.options()), at::zeros(p.sizes(), p.options())});
  }
}

double ShardedOptimizer::step() {
  model_.scheduler().begin_optimizer();
  ++steps_;
  double squares = 0.0;
  for (UnitId u = 0; u < model_.unit_count(); ++u) {
    const ShardedModel::Shard s = model_.shard(u);
    SHARDSCOPE_CHECK(s.gradients.defined(), "unit " + std::to_string(u) + " has no gradient");
    const std::size_t i = static_cast<std::size_t>(u);
    const double sum = kind_ == OptimizerKind::kAdamW
                           ? ops::adamw_(s.parameters, s.gradients, states_[i].m, states_[i].v, adamw_, steps_)
                           : ops::sgd_(s.parameters, s.gradients, sgd_lr_);
    if (s.counts) squares += sum;
  }
  model_.scheduler().end_optimizer();
  return squares;
}

}  // namespace fsdp
