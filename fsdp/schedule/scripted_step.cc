#include "fsdp/schedule/scripted_step.h"

#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/plan/shard_layout.h"

namespace fsdp {

CollectiveCall CountingUnitMemory::all_gather_call(UnitId u) {
  return {.kind = CollectiveKind::kAllGather, .unit = u, .count = at(u).parameters / size_of(Dtype::kFloat32)};
}

CollectiveCall CountingUnitMemory::reduce_call(UnitId u) {
  const bool all = all_reduces_[static_cast<std::size_t>(u)];
  return {.kind = all ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter,
          .unit = u,
          .count = at(u).gradient / size_of(Dtype::kFloat32)};
}

CollectiveCall CountingUnitMemory::replica_call(UnitId u) {
  return {.kind = CollectiveKind::kAllReduce,
          .communicator = Communicator::kReplica,
          .unit = u,
          .count = at(u).gradient / size_of(Dtype::kFloat32)};
}

void CountingUnitMemory::accumulate_unsharded(UnitId u) {
  accumulated_.resize(units_.size());
  if (accumulated_[static_cast<std::size_t>(u)]) return;
  meter_.add(at(u).accumulated, MemoryCategory::kGradients);
  accumulated_[static_cast<std::size_t>(u)] = true;
}

void CountingUnitMemory::drop_accumulated(UnitId u) {
  if (accumulated_.empty() || !accumulated_[static_cast<std::size_t>(u)]) return;
  meter_.sub(at(u).accumulated, MemoryCategory::kGradients);
  accumulated_[static_cast<std::size_t>(u)] = false;
}

Script sequence_script(int units, bool with_root) {
  Script s;
  const int first = with_root ? 1 : 0;
  if (with_root) s.push_back({ScriptEvent::Kind::kEnter, 0});
  for (int i = first; i < first + units; ++i) {
    s.push_back({ScriptEvent::Kind::kEnter, i});
    s.push_back({ScriptEvent::Kind::kLeave, i});
  }
  if (with_root) s.push_back({ScriptEvent::Kind::kLeave, 0});
  return s;
}

namespace {
void walk(const ModuleTree& tree, const std::vector<UnitId>& enters, const std::vector<UnitId>& leaves, ModuleId m,
          Script& out) {
  const UnitId enter = enters[static_cast<std::size_t>(m)], leave = leaves[static_cast<std::size_t>(m)];
  if (enter != kNoUnit) out.push_back({ScriptEvent::Kind::kEnter, enter});
  for (ModuleId c : tree.modules[static_cast<std::size_t>(m)].children) walk(tree, enters, leaves, c, out);
  if (leave != kNoUnit) out.push_back({ScriptEvent::Kind::kLeave, leave});
}
}  // namespace

Script make_script(const ModuleTree& tree, const UnitPlan& plan) {
  std::vector<UnitId> enters(tree.modules.size(), kNoUnit), leaves(tree.modules.size(), kNoUnit);
  for (UnitId u = 0; u < static_cast<UnitId>(plan.units.size()); ++u) {
    const UnitSpec& unit = plan.units[static_cast<std::size_t>(u)];
    enters[static_cast<std::size_t>(unit.modules.front())] = u;
    leaves[static_cast<std::size_t>(unit.modules.back())] = u;
  }
  Script out;
  walk(tree, enters, leaves, 0, out);
  return out;
}

namespace {
void run_micro_batch(Scheduler& scheduler, const Script& script, const ScriptedCompute& compute) {
  for (const ScriptEvent& e : script) {
    if (e.kind == ScriptEvent::Kind::kLeave) {
      scheduler.post_forward(e.unit);
      continue;
    }
    scheduler.pre_forward(e.unit);
    if (compute) compute(Pass::kForward, e.unit);
  }
  for (auto e = script.rbegin(); e != script.rend(); ++e) {
    if (e->kind == ScriptEvent::Kind::kEnter) {
      scheduler.post_backward(e->unit);
      continue;
    }
    scheduler.pre_backward(e->unit);
    if (compute) compute(Pass::kBackward, e->unit);
  }
  scheduler.end_backward();
}
}  // namespace

void run_scripted_step(Scheduler& scheduler, Device& device, int step, const Script& script,
                       const ScriptedCompute& compute, const MicroBatches& micro_batches) {
  device.begin_step(step);
  scheduler.begin_step();
  for (int i = 0; i < micro_batches.count; ++i) {
    scheduler.set_gradient_sync(micro_batches.sync(i));
    run_micro_batch(scheduler, script, compute);
  }
  scheduler.begin_optimizer();
  if (compute) compute(Pass::kOptimizer, kNoUnit);
  scheduler.end_optimizer();
  device.end_step();
}

MemoryPrediction predict_memory(const std::vector<UnitTraits>& traits, const std::vector<UnitBytes>& bytes,
                                const Script& script, const SchedulerOptions& options, int world,
                                const MicroBatches& micro_batches) {
  MemoryMeter meter;
  std::vector<bool> all_reduces;
  for (const UnitTraits& t : traits) all_reduces.push_back(t.all_reduces);
  MemoryPrediction p;
  for (const UnitBytes& b : bytes) {
    meter.add(b.parameters, MemoryCategory::kParameters);
    meter.add(b.optimizer, MemoryCategory::kOptimizer);
  }
  p.resident = meter.live();
  VirtualDevice device;
  VirtualCollectives collectives(device, world, [](const CollectiveCall&) { return Nanos{0}; });
  CountingUnitMemory memory(bytes, all_reduces, meter);
  Scheduler scheduler(traits, options, device, collectives, memory, &meter);
  for (int step = 0; step < 2; ++step) run_scripted_step(scheduler, device, step, script, {}, micro_batches);
  p.category_peaks = meter.peak_by_category();
  p.peak = meter.peak();
  return p;
}

UnitBytes unit_bytes(const UnitSpec& unit, const ModuleTree& tree, int world, Bytes optimizer_state_per_element) {
  const UnitOptions& o = unit.options;
  const bool whole = o.strategy == Strategy::kNoShard;
  std::vector<Count> numels;
  for (ParameterId p : unit.parameters) numels.push_back(tree.parameters[static_cast<std::size_t>(p)].numel());
  const ShardLayout l = make_flat_layout(numels, whole ? 1 : world, align_elements_for(o.param_dtype, o.reduce_dtype));
  constexpr Bytes kMaster = 4;
  UnitBytes b;
  b.parameters = l.shard * kMaster;
  b.unsharded = l.world > 1 ? l.flat * size_of(o.param_dtype) : 0;
  b.reduce = world > 1 && !whole ? l.flat * size_of(o.reduce_dtype) : 0;  // an all-reduce works in place
  b.gradient = l.shard * kMaster;
  b.accumulated = l.flat * size_of(o.reduce_dtype);
  b.optimizer = l.shard * optimizer_state_per_element;
  b.padding = l.padding();
  return b;
}

UnitTraits unit_traits(const UnitSpec& unit, const UnitBytes& bytes, int world) {
  UnitTraits t;
  t.name = unit.name;
  t.gathers = bytes.unsharded > 0;
  t.reshard_after_forward = reshards_after_forward(unit);
  t.all_reduces = unit.options.strategy == Strategy::kNoShard;
  t.reduces = world > 1;
  t.unsharded_bytes = bytes.unsharded > 0 ? bytes.unsharded : bytes.parameters;
  return t;
}

}  // namespace fsdp
