#include "fsdp/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "fsdp/schedule/scheduler_state.h"

namespace fsdp {

GateLimit auto_gate(int forward_prefetch, BackwardPrefetch mode, int backward_depth) {
  const int backward = mode == BackwardPrefetch::kPre ? backward_depth : mode == BackwardPrefetch::kPost ? 1 : 0;
  return {GateLimit::Kind::kUnits, std::max(2, std::max(forward_prefetch, backward) + 1)};
}

Scheduler::Scheduler(std::vector<UnitTraits> units, const SchedulerOptions& options, Device& device,
                     Collectives& collectives, UnitMemory& memory, MemoryMeter* meter)
    : s_(std::make_unique<State>(std::move(units), options, device, collectives, memory, meter)) {}
Scheduler::~Scheduler() = default;

void Scheduler::begin_step() {
  s_->hash = 0xCBF29CE484222325ULL;
  s_->pass = Pass::kNone;
  s_->active.clear();
  s_->sync = GradientSync::kFull;
  for (auto& u : s_->units) u.forwards = 0, u.in_backward = false, u.reduced = false, u.entered = false;
  s_->wait(Lane::kAllGather, s_->optimizer_done);
  s_->enter(Pass::kForward);
  s_->resume_compute();
}

void Scheduler::set_gradient_sync(GradientSync sync) { s_->sync = sync; }

void Scheduler::pre_forward(UnitId u) {
  State& s = *s_;
  s.device.host_context();
  auto& unit = s.at(u);
  unit.entered = true;
  if (s.pass == Pass::kBackward) {  // recompute of a checkpointed region: gathers if it must, changes nothing else
    s.gather(u, false);
    s.make_ready(u);
    s.resume_compute();
    return;
  }
  s.enter(Pass::kForward);
  s.visit(u);
  s.demand(u);
  s.prefetch();
  s.make_ready(u);
  ++unit.forwards;
  s.open(u);
  s.resume_compute();
}

void Scheduler::post_forward(UnitId u) {
  State& s = *s_;
  if (s.pass == Pass::kBackward) return;  // recompute frees nothing
  s.device.host_context();
  auto& unit = s.at(u);
  s.close(u);
  if (unit.traits.reshard_after_forward && unit.state.holds_memory()) {
    if (unit.traits.keeps_group_shard) {
      s.memory.keep_group_shard(u);
      unit.has_group_shard = true;
    }
    s.release_unsharded(u);
    s.prefetch();  // what the gate put off
  }
  s.resume_compute();
}

void Scheduler::begin_backward() { s_->enter(Pass::kBackward); }

void Scheduler::pre_backward(UnitId u) {
  State& s = *s_;
  auto& unit = s.at(u);
  if (s.pass == Pass::kBackward && unit.in_backward) return;  // another output of the same unit
  s.device.host_context();
  s.enter(Pass::kBackward);
  unit.in_backward = true;
  s.visit(u);
  s.demand(u);
  if (s.options.backward_prefetch == BackwardPrefetch::kPre) s.prefetch();
  s.make_ready(u);
  s.open(u);
  s.resume_compute();
}

void Scheduler::post_backward(UnitId u) {
  State& s = *s_;
  s.device.host_context();
  s.enter(Pass::kBackward);
  auto& unit = s.at(u);
  s.close(u);
  s.locate(u, Pass::kBackward);
  unit.in_backward = false;
  unit.forwards = std::max(0, unit.forwards - 1);
  unit.reduced = unit.forwards == 0;
  if (unit.forwards == 0 && s.frees_in_backward(unit) && unit.state.holds_memory()) {
    s.await_gather(unit);
    s.release_unsharded(u);
  }
  if (s.options.backward_prefetch != BackwardPrefetch::kNone) s.prefetch();  // post; or what the gate put off
  s.locate(u, Pass::kBackward);
  if (unit.traits.trains) s.take_gradients(u);
  s.resume_compute();
}

void Scheduler::end_backward() {
  State& s = *s_;
  s.enter(Pass::kBackward);
  for (UnitId u = 0; u < static_cast<UnitId>(s.units.size()); ++u)
    if (!s.at(u).reduced && s.sync != GradientSync::kNone && s.at(u).traits.trains) {
      s.tell_never_entered(s.at(u));
      s.at(u).forwards = 0;
      post_backward(u);  // zeros: every rank reduces every unit, whatever ran
    }
  s.device.host_context();
  s.leave();
  for (UnitId u = 0; u < static_cast<UnitId>(s.units.size()); ++u) {
    auto& unit = s.at(u);
    if (!s.frees_in_backward(unit) || !unit.state.holds_memory()) continue;
    s.await_gather(unit);
    s.release_unsharded(u);
  }
  while (!s.reduces.empty()) s.retire_oldest_reduce();
  s.await_replicas();
  for (UnitId u = 0; u < static_cast<UnitId>(s.units.size()); ++u) {
    s.at(u).reduced = false, s.at(u).forwards = 0;
    if (s.sync != GradientSync::kNone) s.at(u).entered = false;
    s.drop_group_shard(u);  // of a unit without a backward: the optimizer makes it stale
  }
  s.pass = Pass::kNone;
  s.active.clear();
}

void Scheduler::begin_optimizer() {
  State& s = *s_;
  s.pass = Pass::kOptimizer;
  s.locate(kNoUnit, Pass::kOptimizer);
  s.note({.verb = Verb::kOptimizerBegin, .lane = Lane::kCompute, .pass = Pass::kOptimizer});
  s.device.compute_context({SpanKind::kOptimizer, kNoUnit, Pass::kOptimizer, 0});
}

void Scheduler::end_optimizer() {
  State& s = *s_;
  s.device.host_context();
  s.note({.verb = Verb::kOptimizerEnd, .lane = Lane::kCompute, .pass = Pass::kOptimizer});
  s.optimizer_done = s.record(Lane::kCompute);
  for (UnitId u = 0; u < static_cast<UnitId>(s.units.size()); ++u) {
    auto& unit = s.at(u);
    if (!unit.has_gradient) continue;
    s.note({.verb = Verb::kReleaseGradient, .lane = Lane::kCompute, .unit = u, .pass = Pass::kOptimizer});
    s.memory.release_gradient(u);
    unit.has_gradient = false;
  }
  s.pass = Pass::kNone;
  s.locate(kNoUnit, Pass::kNone);
}

void Scheduler::set_log(VerbLog* log) { s_->log = log; }
const SchedulerStats& Scheduler::stats() const { return s_->stats; }
std::vector<std::string> Scheduler::take_warnings() { return std::exchange(s_->warnings, {}); }
std::uint64_t Scheduler::step_hash() const { return s_->hash; }

std::string Scheduler::last_collective() const {
  const auto& l = s_->last;
  if (l.unit == kNoUnit) return "none";
  return std::string(name_of(l.kind)) + " of " + s_->at(l.unit).traits.name + ", " + std::string(name_of(l.pass));
}

}  // namespace fsdp
