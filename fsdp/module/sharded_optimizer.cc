#include "fsdp/module/sharded_optimizer.h"

#include <algorithm>
#include <cmath>

#include "fsdp/core/errors.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/flat_storage.h"
#include "fsdp/module/tensor_device.h"
#include "fsdp/module/torch.h"

namespace fsdp {
namespace {

constexpr Count kNormPlace = 32;  // elements between the all-reduce's input and output

at::Tensor part(const at::Tensor& t, Count at, Count n) { return at == 0 && n == t.numel() ? t : t.narrow(0, at, n); }

}  // namespace

ShardedOptimizer::ShardedOptimizer(ShardedModel& model, const OptimizerOptions& options, Device& device,
                                   Collectives& collectives)
    : model_(model), options_(options), device_(device), collectives_(collectives) {
  const CategoryScope scope(MemoryCategory::kOptimizer);
  for (UnitId u = 0; u < model_.unit_count(); ++u) {
    const ShardedModel::Shard s = model_.shard(u);
    runs_.push_back(runs_of(u));
    const bool has_state = options_.kind == OptimizerKind::kAdamW && s.trains;
    const Count n = model_.gradient_count(u);
    states_.push_back(has_state ? State{at::zeros({n}, s.parameters.options()), at::zeros({n}, s.parameters.options())}
                                : State{});
  }
  if (options_.clip) norm_ = own_tensor(model_.shard(0).parameters.is_meta(), 2 * kNormPlace, MemoryCategory::kOther);
}

// A unit that is trainable as a whole is one run, padding included: zeros stay zeros.
std::vector<ShardedOptimizer::Run> ShardedOptimizer::runs_of(UnitId u) const {
  const ShardedModel::Shard s = model_.shard(u);
  if (!s.trains) return {};
  bool whole = true;
  std::vector<Run> runs;
  for (std::size_t i = 0; i < model_.parameter_count(u); ++i) {
    const ShardedModel::ParameterShard p = model_.parameter_shard(u, i);
    whole = whole && p.parameter->trainable;
    const Count n = p.range.end - p.range.begin;
    if (p.parameter->trainable && n > 0) runs.push_back({p.range.at, p.gradient_at, n});
  }
  if (whole) return {{0, 0, model_.gradient_count(u)}};
  return runs;
}

double ShardedOptimizer::step() {
  model_.scheduler().begin_optimizer();
  ++steps_;
  // Reading numbers back waits without a deadline: what peers may hold up has to be over by then.
  if (current_tensor_device() != nullptr) device_.synchronize(device_.record(Lane::kCompute));
  double squares = options_.clip ? square_sum() : 0.0;
  const double scale = options_.clip ? clip_scale(squares) : 1.0;
  double updated = 0.0;
  for (UnitId u = 0; u < model_.unit_count(); ++u) {
    const double sum = update(u, scale);
    if (model_.shard(u).counts) updated += sum;
  }
  model_.scheduler().end_optimizer();
  return options_.clip ? squares : updated;
}

double ShardedOptimizer::update(UnitId u, double gradient_scale) {
  const ShardedModel::Shard s = model_.shard(u);
  if (!s.trains) return 0.0;
  SHARDSCOPE_CHECK(s.gradients.defined(), "unit " + std::to_string(u) + " has no gradient");
  const State& state = states_[static_cast<std::size_t>(u)];
  double squares = 0.0;
  for (const Run& r : runs_[static_cast<std::size_t>(u)]) {
    const at::Tensor p = part(s.parameters, r.parameter_at, r.count), g = part(s.gradients, r.gradient_at, r.count);
    squares += options_.kind == OptimizerKind::kAdamW
                   ? ops::adamw_(p, g, part(state.m, r.gradient_at, r.count), part(state.v, r.gradient_at, r.count),
                                 options_.adamw, steps_, gradient_scale)
                   : ops::sgd_(p, g, options_.sgd_lr * gradient_scale);
  }
  return squares;
}

double ShardedOptimizer::square_sum() const {
  double squares = 0.0;
  for (UnitId u = 0; u < model_.unit_count(); ++u) {
    const ShardedModel::Shard s = model_.shard(u);
    if (!s.trains || !s.counts) continue;
    for (const Run& r : runs_[static_cast<std::size_t>(u)])
      squares += ops::square_sum(part(s.gradients, r.gradient_at, r.count));
  }
  return squares;
}

double ShardedOptimizer::clip_scale(double square_sum) {
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduce;
  call.pass = Pass::kOptimizer;
  call.count = 1;
  if (norm_.is_cpu()) {
    auto* const place = norm_.mutable_data_ptr<float>();
    *place = static_cast<float>(square_sum);
    call.in = place;
    call.out = place + kNormPlace;
  } else if (!norm_.is_meta()) {
    norm_.fill_(square_sum);
    call.in = norm_.const_data_ptr();
    call.out = norm_.mutable_data_ptr<float>() + kNormPlace;
  }
  device_.wait(Lane::kAllReduce, device_.record(Lane::kCompute));
  collectives_.enqueue(Lane::kAllReduce, call);
  device_.wait(Lane::kCompute, device_.record(Lane::kAllReduce));
  if (norm_.is_meta()) return 1.0;
  if (!norm_.is_cpu()) device_.synchronize(device_.record(Lane::kCompute));
  const double norm = std::sqrt(norm_.is_cpu() ? static_cast<double>(norm_.const_data_ptr<float>()[kNormPlace])
                                               : norm_[kNormPlace].item<double>());
  return std::min(1.0, *options_.clip / (norm + 1e-6));
}

}  // namespace fsdp
