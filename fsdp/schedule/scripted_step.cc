#include "fsdp/schedule/scripted_step.h"

#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/plan/shard_layout.h"

namespace fsdp {

CountingUnitMemory::Held& CountingUnitMemory::held(UnitId u) {
  held_.resize(units_.size());
  return held_[static_cast<std::size_t>(u)];
}

void CountingUnitMemory::acquire_unsharded(UnitId u) {
  const bool copies = at(u).gathered > 0;
  meter_.add(copies ? at(u).gathered : at(u).unsharded, MemoryCategory::kUnsharded);
  (copies ? held(u).gathered : held(u).unsharded) = true;
}

void CountingUnitMemory::copy_out(UnitId u) {
  if (!held(u).gathered) return;
  meter_.add(at(u).unsharded, MemoryCategory::kUnsharded);
  held(u).unsharded = true;
  meter_.sub(at(u).gathered, MemoryCategory::kUnsharded);
  held(u).gathered = false;
}

void CountingUnitMemory::release_unsharded(UnitId u) {
  Held& h = held(u);
  meter_.sub((h.gathered ? at(u).gathered : 0) + (h.unsharded ? at(u).unsharded : 0), MemoryCategory::kUnsharded);
  h.gathered = h.unsharded = false;
}

void CountingUnitMemory::keep_group_shard(UnitId u) {
  if (held(u).group_shard) return;
  meter_.add(at(u).group_shard, MemoryCategory::kUnsharded);
  held(u).group_shard = true;
}

void CountingUnitMemory::drop_group_shard(UnitId u) {
  if (!held(u).group_shard) return;
  meter_.sub(at(u).group_shard, MemoryCategory::kUnsharded);
  held(u).group_shard = false;
}

void CountingUnitMemory::acquire_reduce_input(UnitId u) {
  const bool all = all_reduces_[static_cast<std::size_t>(u)];
  held(u).reduce = held(u).gradient && all ? at(u).reduce_again : at(u).reduce;
  if (held(u).reduce == 0) return acquire_gradient(u);  // reduced in place
  meter_.add(held(u).reduce, MemoryCategory::kReduce);
}

void CountingUnitMemory::release_reduce_input(UnitId u) {
  meter_.sub(held(u).reduce, MemoryCategory::kReduce);
  held(u).reduce = 0;
}

void CountingUnitMemory::acquire_gradient(UnitId u) {
  if (held(u).gradient) return;
  meter_.add(at(u).gradient, MemoryCategory::kGradients);
  held(u).gradient = true;
}

void CountingUnitMemory::release_gradient(UnitId u) {
  meter_.sub(at(u).gradient, MemoryCategory::kGradients);
  held(u).gradient = false;
}

void CountingUnitMemory::acquire_group_sum(UnitId u) { meter_.add(at(u).group_sum, MemoryCategory::kGradients); }

void CountingUnitMemory::release_group_sum(UnitId u) { meter_.sub(at(u).group_sum, MemoryCategory::kGradients); }

CollectiveCall CountingUnitMemory::all_gather_call(UnitId u) {
  const Dtype d = at(u).param_dtype;
  return {.kind = CollectiveKind::kAllGather,
          .communicator = {Communicator::kShard, at(u).group},
          .unit = u,
          .in_dtype = d,
          .out_dtype = d,
          .count = at(u).count};
}

CollectiveCall CountingUnitMemory::reduce_call(UnitId u) {
  const bool all = all_reduces_[static_cast<std::size_t>(u)];
  return {.kind = all ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter,
          .communicator = {Communicator::kShard, at(u).group},
          .unit = u,
          .in_dtype = at(u).reduce_dtype,
          .count = at(u).gradient / size_of(Dtype::kFloat32)};
}

CollectiveCall CountingUnitMemory::replica_call(UnitId u) {
  return {.kind = CollectiveKind::kAllReduce,
          .communicator = {Communicator::kReplica, at(u).group},
          .unit = u,
          .in_dtype = at(u).reduce_dtype,
          .count = at(u).gradient / size_of(Dtype::kFloat32)};
}

void CountingUnitMemory::accumulate_unsharded(UnitId u) {
  if (held(u).accumulated) return;
  meter_.add(at(u).accumulated, MemoryCategory::kGradients);
  held(u).accumulated = true;
}

void CountingUnitMemory::drop_accumulated(UnitId u) {
  if (!held(u).accumulated) return;
  meter_.sub(at(u).accumulated, MemoryCategory::kGradients);
  held(u).accumulated = false;
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

using Kind = ScriptEvent::Kind;

struct Walk {
  const ModuleTree& tree;
  bool checkpoint;
  std::vector<UnitId> enters, leaves;  // by module
  Script out;

  void visit(ModuleId m) {
    const auto at = static_cast<std::size_t>(m);
    const bool region = checkpoint && tree.modules[at].is_block;
    if (enters[at] != kNoUnit) out.push_back({Kind::kEnter, enters[at]});
    if (region) out.push_back({Kind::kRegionBegin});
    for (ModuleId c : tree.modules[at].children) visit(c);
    if (region) out.push_back({Kind::kRegionEnd});
    if (leaves[at] != kNoUnit) out.push_back({Kind::kLeave, leaves[at]});
  }
};

}  // namespace

Script make_script(const ModuleTree& tree, const UnitPlan& plan, bool checkpoint) {
  Walk walk{tree, checkpoint, std::vector<UnitId>(tree.modules.size(), kNoUnit), {}, {}};
  walk.leaves = walk.enters;
  for (UnitId u = 0; u < static_cast<UnitId>(plan.units.size()); ++u) {
    const UnitSpec& unit = plan.units[static_cast<std::size_t>(u)];
    walk.enters[static_cast<std::size_t>(unit.modules.front())] = u;
    walk.leaves[static_cast<std::size_t>(unit.modules.back())] = u;
  }
  walk.visit(0);
  return std::move(walk.out);
}

namespace {

void run_forward(Scheduler& scheduler, Script::const_iterator from, Script::const_iterator to,
                 const ScriptedCompute& compute, Pass pass) {
  for (; from != to; ++from) {
    if (from->kind == Kind::kLeave) scheduler.post_forward(from->unit);
    if (from->kind != Kind::kEnter) continue;
    scheduler.pre_forward(from->unit);
    if (compute) compute(pass, from->unit);
  }
}

void run_backward(Scheduler& scheduler, const Script& script, const ScriptedCompute& compute) {
  for (auto e = script.rbegin(); e != script.rend(); ++e) {
    if (e->kind == Kind::kEnter) scheduler.post_backward(e->unit);
    if (e->kind == Kind::kRegionEnd) {  // regions do not nest
      scheduler.begin_backward();
      const auto begin = std::find_if(e, script.rend(), [](const auto& b) { return b.kind == Kind::kRegionBegin; });
      run_forward(scheduler, begin.base(), e.base(), compute, Pass::kBackward);
    }
    if (e->kind != Kind::kLeave) continue;
    scheduler.pre_backward(e->unit);
    if (compute) compute(Pass::kBackward, e->unit);
  }
}

}  // namespace

void run_scripted_step(Scheduler& scheduler, Device& device, int step, const Script& script,
                       const ScriptedCompute& compute, const MicroBatches& micro_batches) {
  device.begin_step(step);
  scheduler.begin_step();
  for (int i = 0; i < micro_batches.count; ++i) {
    scheduler.set_gradient_sync(micro_batches.sync(i));
    run_forward(scheduler, script.begin(), script.end(), compute, Pass::kForward);
    run_backward(scheduler, script, compute);
    scheduler.end_backward();
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
  const ShardLayout l = unit_layout(unit, tree, world), g = gradient_layout(unit, tree, world).layout;
  const int keep = reshard_ranks(unit, world);
  constexpr Bytes kMaster = 4;
  const Bytes travels = size_of(o.param_dtype), reduced = size_of(o.reduce_dtype);
  const bool gathers = l.world > 1 || o.param_dtype != Dtype::kFloat32;
  const bool in_place = l.world == 1 && o.reduce_dtype == Dtype::kFloat32;  // the reduce input is the gradient
  UnitBytes b;
  b.parameters = l.shard * kMaster;
  b.unsharded = gathers ? l.full * travels : 0;
  b.gathered = l.copies() ? l.flat * travels : 0;
  b.group_shard = keep > 0 ? l.flat * travels / keep : 0;
  b.reduce = world > 1 && !in_place ? g.flat * reduced : 0;
  b.reduce_again = world > 1 ? g.flat * reduced : 0;
  b.gradient = g.shard * kMaster;
  const bool hybrid = replicates(unit, world);
  b.group_sum = hybrid && o.reduce_dtype != Dtype::kFloat32 ? g.shard * reduced : 0;
  b.accumulated = g.flat * reduced;
  b.optimizer = g.shard * optimizer_state_per_element;
  b.padding = l.padding();
  b.count = l.shard;
  b.group = hybrid ? l.world : 0;
  b.param_dtype = o.param_dtype;
  b.reduce_dtype = o.reduce_dtype;
  return b;
}

UnitTraits unit_traits(const UnitSpec& unit, const UnitBytes& bytes, int world) {
  const int ranks = shard_ranks(unit, world);
  UnitTraits t;
  t.name = unit.name;
  t.gathers = bytes.unsharded > 0;
  t.sends = ranks > 1;
  t.casts = unit.options.param_dtype != Dtype::kFloat32;
  t.copies_out = bytes.gathered > 0;
  t.trains = bytes.gradient > 0;
  t.reshard_after_forward = reshards_after_forward(unit);
  // Flat as FSDP1: what its strategy frees after forward goes without a reduction too, even the root, which forward
  // keeps. Per parameter as FSDP2: always.
  const Strategy s = unit.options.strategy;
  const bool frees = s == Strategy::kFullShard || s == Strategy::kHybridShard;
  t.frees_without_sync =
      unit.options.layout == Layout::kPerParameter || (frees && unit.options.reshard_after_forward.value_or(true));
  t.keeps_group_shard = bytes.group_shard > 0;
  t.all_reduces = ranks == 1;
  t.packs = bytes.reduce > 0;
  t.reduces = world > 1;
  t.replicates = replicates(unit, world);
  t.keeps_group_sum = bytes.group_sum > 0;
  t.unsharded_bytes = bytes.gathered > 0 ? bytes.gathered : bytes.unsharded > 0 ? bytes.unsharded : bytes.parameters;
  t.reduce_bytes = bytes.reduce_again;
  return t;
}

}  // namespace fsdp
