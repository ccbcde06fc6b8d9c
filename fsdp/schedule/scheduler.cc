#include "fsdp/schedule/scheduler.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "fsdp/core/errors.h"
#include "fsdp/schedule/memory_gate.h"
#include "fsdp/schedule/prefetch_policy.h"
#include "fsdp/schedule/unit_state.h"

namespace fsdp {

GateLimit auto_gate(int forward_prefetch, BackwardPrefetch mode, int backward_depth) {
  const int backward = mode == BackwardPrefetch::kPre ? backward_depth : mode == BackwardPrefetch::kPost ? 1 : 0;
  return {GateLimit::Kind::kUnits, std::max(2, std::max(forward_prefetch, backward) + 1)};
}

struct Scheduler::State {
  struct Unit {
    UnitTraits traits;
    UnitState state;
    LoggedEvent gathered;     // the gather under way
    int slot = -1;            // place in the gate
    bool counted = false;     // holds a place in the gate
    bool prefetched = false;  // gathered ahead, its turn has not come yet
    int forwards = 0;         // forwards of this step whose backward is still to come
    bool in_backward = false;
    bool reduced = false;  // in this micro-batch
    bool has_gradient = false;
    bool has_group_shard = false;
  };
  struct Reduce {
    UnitId unit;
    int slot;
    LoggedEvent done;
  };

  State(std::vector<UnitTraits> traits, const SchedulerOptions& o, Device& d, Collectives& c, UnitMemory& m,
        MemoryMeter* meter)
      : options(o), device(d), collectives(c), memory(m), meter(meter), gate(o.max_inflight) {
    units.reserve(traits.size());
    for (UnitTraits& t : traits) {
      gathers.push_back(t.gathers ? 1 : 0);
      const bool g = t.gathers;
      units.push_back({.traits = std::move(t), .state = UnitState(g)});
    }
    forward.fix(o.forward_order);
    backward.fix(o.backward_order);
    for (int i = 0; i < std::max(1, o.reduce_scatter_slots); ++i) free_reduce_slots.push_back(i);
    window.reserve(16);
    active.reserve(16);
    const int depth = static_cast<int>(auto_gate(o.forward_prefetch, o.backward_prefetch, o.backward_depth).value);
    if (o.max_inflight.kind == GateLimit::Kind::kUnits && o.max_inflight.value < depth && depth > 2)
      warnings.push_back("max_inflight " + std::to_string(o.max_inflight.value) +
                         " is below the prefetch depth asked for (" + std::to_string(depth - 1) + " units ahead need " +
                         std::to_string(depth) + "): prefetches will wait for a place");
  }

  Unit& at(UnitId u) { return units[static_cast<std::size_t>(u)]; }

  // ---- log and events
  // ------------------------------------------------------------------------------------------------
  void note(const VerbEntry& e) {
    if (log != nullptr) log->push_back(e);
  }
  LoggedEvent record(Lane lane) {
    LoggedEvent e{device.record(lane), ++event_number};
    note({.verb = Verb::kRecord, .lane = lane, .event = e.number});
    return e;
  }
  void wait(Lane lane, const LoggedEvent& e, SpanKind reason = SpanKind::kWait) {
    if (e.number == 0) return;
    note({.verb = Verb::kWait, .lane = lane, .event = e.number});
    device.wait(lane, e.event, reason);
  }
  void count(CollectiveKind kind, UnitId unit, Bytes bytes, Dtype dtype) {
    last = {kind, unit, pass};
    for (std::uint64_t v :
         {std::uint64_t(kind) + 1, std::uint64_t(unit) + 1, std::uint64_t(bytes), std::uint64_t(dtype) + 1})
      hash = (hash ^ v) * 0x100000001B3ULL;
  }
  void locate(UnitId unit, Pass p) {
    if (meter != nullptr) meter->set_context({unit, p});
  }

  // ---- what the compute lane does
  // -------------------------------------------------------------------------------------- The innermost unit that is
  // open: its code runs between the hooks of its children.
  void resume_compute() {
    const UnitId unit = active.empty() ? kNoUnit : active.back();
    locate(unit, pass);
    device.compute_context({SpanKind::kCompute, unit, pass, 0});
  }
  void open(UnitId u) {
    active.push_back(u);
    note({.verb = Verb::kComputeBegin, .lane = Lane::kCompute, .unit = u, .pass = pass});
  }
  void close(UnitId u) {
    const auto it = std::find(active.rbegin(), active.rend(), u);
    if (it == active.rend()) return;  // swept at the end of backward: it never ran
    note({.verb = Verb::kComputeEnd, .lane = Lane::kCompute, .unit = u, .pass = pass});
    active.erase(std::next(it).base());
  }

  // ---- passes
  // ----------------------------------------------------------------------------------------------------------
  PassOrder& order_of(Pass p) { return p == Pass::kForward ? forward : backward; }
  void enter(Pass p) {
    if (pass == p) return;
    leave();
    pass = p;
    active.clear();
    if (p == Pass::kForward || p == Pass::kBackward) order_of(p).begin();
  }
  void leave() {
    if (pass != Pass::kForward && pass != Pass::kBackward) return;
    if (order_of(pass).end())
      changed("the " + std::string(name_of(pass)) + " pass ended before all units of the last one had run");
    free_unused();
  }
  void changed(const std::string& what) {
    ++stats.order_changes;
    warnings.push_back("order changed: " + what + "; gathered on demand, the order is recorded anew");
  }
  void visit(UnitId u) {
    if (order_of(pass).visit(u)) changed("at unit " + at(u).traits.name + " in " + std::string(name_of(pass)));
  }

  // ---- gathering
  // -------------------------------------------------------------------------------------------------------
  bool counts_in_gate(const Unit& unit) const { return unit.traits.reshard_after_forward; }

  // False: the gate has no place; a prefetch is put off, a demand never comes here without one.
  bool gather(UnitId u, bool prefetch) {
    Unit& unit = at(u);
    if (!unit.state.needs_gather()) return true;
    const bool counted = counts_in_gate(unit);
    const Bytes bytes = unit.traits.unsharded_bytes;
    if (counted && !gate.fits(bytes)) {
      if (prefetch) return false;
      evict_prefetched();
    }
    MemoryGate::Place place;
    if (counted) place = gate.take(bytes);
    for (const LoggedEvent& e : place.after) wait(Lane::kAllGather, e);
    if (!prefetch && options.demand_waits_for_compute) wait(Lane::kAllGather, record(Lane::kCompute));
    locate(u, pass);
    note({.verb = Verb::kAcquireUnsharded, .unit = u, .pass = pass, .slot = place.slot, .bytes = bytes});
    memory.acquire_unsharded(u);
    if (unit.traits.casts && !unit.has_group_shard) cast(u);  // else it was cast before it was kept
    if (unit.traits.sends) send_gather(u, place.slot, prefetch);
    unit.state.gather();
    unit.gathered = record(Lane::kAllGather);
    unit.slot = place.slot;
    unit.counted = counted;
    unit.prefetched = prefetch;
    return true;
  }

  void send_gather(UnitId u, int slot, bool prefetch) {
    const Bytes bytes = at(u).traits.unsharded_bytes;
    CollectiveCall call = memory.all_gather_call(u);
    call.pass = pass;
    note({.verb = Verb::kAllGather,
          .lane = Lane::kAllGather,
          .unit = u,
          .pass = pass,
          .slot = slot,
          .bytes = bytes,
          .prefetch = prefetch});
    count(CollectiveKind::kAllGather, u, bytes, call.out_dtype);
    collectives.enqueue(Lane::kAllGather, call);
    ++stats.all_gathers;
  }

  void cast(UnitId u) {
    note({.verb = Verb::kCast, .lane = Lane::kAllGather, .unit = u, .pass = pass});
    device.compute_context({SpanKind::kCopy, u, pass, at(u).traits.unsharded_bytes});
    memory.cast_shard(u);
    device.host_context();
  }

  void release_unsharded(UnitId u) {
    Unit& unit = at(u);
    const LoggedEvent reader = record(Lane::kCompute);
    note({.verb = Verb::kReleaseUnsharded,
          .lane = Lane::kCompute,
          .unit = u,
          .pass = pass,
          .slot = unit.slot,
          .event = reader.number,
          .bytes = unit.traits.unsharded_bytes});
    memory.release_unsharded(u);
    if (pass == Pass::kBackward) drop_group_shard(u);
    if (unit.counted) gate.give_back(unit.slot, unit.traits.unsharded_bytes, reader);
    unit.counted = false;
    unit.slot = -1;
    unit.prefetched = false;
    unit.state.reshard();
  }
  void drop_group_shard(UnitId u) {
    if (!at(u).has_group_shard) return;
    memory.drop_group_shard(u);
    at(u).has_group_shard = false;
  }
  void await_gather(Unit& unit) {
    if (unit.state.phase() != UnitState::Phase::kGathering) return;
    wait(Lane::kCompute, unit.gathered);
    unit.state.arrived();
  }
  // The parameters are about to be computed with.
  void make_ready(UnitId u) {
    Unit& unit = at(u);
    const bool arrives = unit.state.phase() == UnitState::Phase::kGathering;
    await_gather(unit);
    if (!arrives || !unit.traits.copies_out) return;
    locate(u, pass);
    device.compute_context({SpanKind::kCopy, u, pass, unit.traits.unsharded_bytes});
    note({.verb = Verb::kCopyOut, .lane = Lane::kCompute, .unit = u, .pass = pass, .slot = unit.slot});
    memory.copy_out(u);
    device.host_context();
  }
  // Gathered ahead and not used: the memory is needed, or the pass is over.
  void drop_prefetched(UnitId u) {
    await_gather(at(u));
    release_unsharded(u);
    ++stats.prefetch_unused;
  }
  void evict_prefetched() {
    for (UnitId u = 0; u < static_cast<UnitId>(units.size()); ++u)
      if (at(u).prefetched && at(u).counted) drop_prefetched(u);
  }
  void free_unused() {
    for (UnitId u = 0; u < static_cast<UnitId>(units.size()); ++u)
      if (at(u).prefetched && at(u).state.holds_memory()) drop_prefetched(u);
  }

  int depth_of(Pass p) const {
    if (p == Pass::kForward) return options.forward_prefetch;
    if (options.backward_prefetch == BackwardPrefetch::kPre) return options.backward_depth;
    return options.backward_prefetch == BackwardPrefetch::kPost ? 1 : 0;
  }
  // As far as the record, the depth and the gate allow, in order: one that does not fit stops the ones behind it.
  void prefetch() {
    const PassOrder& order = order_of(pass);
    const int depth = depth_of(pass);
    if (depth == 0 || order.order().empty() || (options_order_empty(pass) && !order.following())) return;
    prefetch_window(order.order(), order.position(), depth, gathers, window);
    for (UnitId next : window)
      if (!gather(next, true)) break;
  }
  bool options_order_empty(Pass p) const {
    return (p == Pass::kForward ? options.forward_order : options.backward_order).empty();
  }

  // A unit's turn: its parameters must come, and were they asked for in time?
  void demand(UnitId u) {
    Unit& unit = at(u);
    if (!unit.traits.gathers) return;
    const PassOrder& order = order_of(pass);
    if (unit.prefetched) {
      ++stats.prefetch_hits;
      unit.prefetched = false;
    } else if (unit.state.needs_gather() && depth_of(pass) > 0 && !order.order().empty() && order.position() > 0) {
      ++stats.prefetch_misses;
    }
    gather(u, false);
  }

  bool frees_in_backward(const Unit& unit) const {
    return unit.traits.reshard_after_backward && (sync != GradientSync::kNone || unit.traits.frees_without_sync);
  }

  // ---- reductions
  // ------------------------------------------------------------------------------------------------------
  void retire_oldest_reduce(SpanKind reason = SpanKind::kWait) {
    const Reduce r = reduces.front();
    reduces.pop_front();
    wait(Lane::kCompute, r.done, reason);
    note({.verb = Verb::kReleaseReduce, .lane = Lane::kCompute, .unit = r.unit, .pass = pass, .slot = r.slot});
    memory.release_reduce_input(r.unit);
    free_reduce_slots.push_back(r.slot);
  }
  void reduce(UnitId u) {
    Unit& unit = at(u);
    while (free_reduce_slots.empty()) retire_oldest_reduce(SpanKind::kMemoryWait);
    const int slot = free_reduce_slots.front();
    free_reduce_slots.pop_front();
    note({.verb = Verb::kAcquireReduce, .unit = u, .pass = pass, .slot = slot});
    memory.acquire_reduce_input(u);
    device.compute_context({SpanKind::kCopy, u, pass, unit.traits.unsharded_bytes});
    note({.verb = Verb::kPack, .lane = Lane::kCompute, .unit = u, .pass = pass, .slot = slot});
    memory.pack_gradients(u);
    device.host_context();
    if (!unit.has_gradient) memory.acquire_gradient(u);
    unit.has_gradient = true;
    const Lane lane = unit.traits.all_reduces ? Lane::kAllReduce : Lane::kReduceScatter;
    wait(lane, record(Lane::kCompute));
    CollectiveCall call = memory.reduce_call(u);
    if (options.own_reduce_scatter_communicator && call.communicator == Communicator::kShard)
      call.communicator = Communicator::kReduceScatter;
    send(u, lane, slot, call);
    reduces.push_back({u, slot, record(lane)});
    if (unit.traits.replicates && sync == GradientSync::kFull) replicate(u, reduces.back().done);
  }
  void send(UnitId u, Lane lane, int slot, CollectiveCall call) {
    call.pass = pass;
    const UnitTraits& traits = at(u).traits;
    const Bytes bytes = traits.reduce_bytes > 0 ? traits.reduce_bytes : traits.unsharded_bytes;
    const bool all = call.kind == CollectiveKind::kAllReduce;
    note({.verb = all ? Verb::kAllReduce : Verb::kReduceScatter,
          .lane = lane,
          .unit = u,
          .pass = pass,
          .slot = slot,
          .bytes = bytes});
    count(call.kind, u, bytes, call.in_dtype);
    collectives.enqueue(lane, call);
    ++(all ? stats.all_reduces : stats.reduce_scatters);
  }
  // Across shard groups, behind the reduce-scatter inside them; the optimizer waits for it.
  void replicate(UnitId u, const LoggedEvent& scattered) {
    wait(Lane::kAllReduce, scattered);
    send(u, Lane::kAllReduce, -1, memory.replica_call(u));
    replicas.push_back(record(Lane::kAllReduce));
  }
  // Nothing is sent: the gradients join the unit's full gradient.
  void accumulate(UnitId u) {
    device.compute_context({SpanKind::kCopy, u, pass, at(u).traits.unsharded_bytes});
    note({.verb = Verb::kAccumulate, .lane = Lane::kCompute, .unit = u, .pass = pass});
    memory.accumulate_unsharded(u);
    device.host_context();
  }
  void pack_alone(UnitId u) {  // nobody to reduce with: gradients go straight to their place
    Unit& unit = at(u);
    if (!unit.has_gradient) memory.acquire_gradient(u);
    unit.has_gradient = true;
    device.compute_context({SpanKind::kCopy, u, pass, unit.traits.unsharded_bytes});
    note({.verb = Verb::kPack, .lane = Lane::kCompute, .unit = u, .pass = pass});
    memory.pack_gradients(u);
    device.host_context();
  }

  // What autograd handed over of one use of the unit.
  void take_gradients(UnitId u) {
    const Unit& unit = at(u);
    if (sync == GradientSync::kNone || unit.forwards > 0)
      accumulate(u);
    else if (unit.traits.reduces)
      reduce(u);
    else
      pack_alone(u);
  }

  SchedulerOptions options;
  Device& device;
  Collectives& collectives;
  UnitMemory& memory;
  MemoryMeter* meter;
  MemoryGate gate;
  std::vector<Unit> units;
  std::vector<char> gathers;
  PassOrder forward, backward;
  Pass pass = Pass::kNone;
  std::vector<UnitId> active;  // open units, outermost first
  std::vector<UnitId> window;
  std::deque<Reduce> reduces;  // in flight, oldest first
  std::deque<int> free_reduce_slots;
  std::vector<LoggedEvent> replicas;  // all-reduces across shard groups, waited for at the end of the pass
  GradientSync sync = GradientSync::kFull;
  LoggedEvent optimizer_done;
  std::uint64_t event_number = 0;
  std::uint64_t hash = 0;
  struct {
    CollectiveKind kind;
    UnitId unit;
    Pass pass;
  } last{CollectiveKind::kBarrier, kNoUnit, Pass::kNone};
  SchedulerStats stats;
  std::vector<std::string> warnings;
  VerbLog* log = nullptr;
};

Scheduler::Scheduler(std::vector<UnitTraits> units, const SchedulerOptions& options, Device& device,
                     Collectives& collectives, UnitMemory& memory, MemoryMeter* meter)
    : s_(std::make_unique<State>(std::move(units), options, device, collectives, memory, meter)) {}
Scheduler::~Scheduler() = default;

void Scheduler::begin_step() {
  s_->hash = 0xCBF29CE484222325ULL;
  s_->pass = Pass::kNone;
  s_->active.clear();
  s_->sync = GradientSync::kFull;
  for (auto& u : s_->units) u.forwards = 0, u.in_backward = false, u.reduced = false;
  s_->wait(Lane::kAllGather, s_->optimizer_done);
  s_->enter(Pass::kForward);
  s_->resume_compute();
}

void Scheduler::set_gradient_sync(GradientSync sync) { s_->sync = sync; }

void Scheduler::pre_forward(UnitId u) {
  State& s = *s_;
  s.device.host_context();
  auto& unit = s.at(u);
  if (s.pass == Pass::kBackward) {  // recompute of a checkpointed region: gathers if it must, changes nothing else (I8)
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
      s.at(u).forwards = 0;
      post_backward(u);  // zeros: every rank reduces every unit, whatever ran (fsdp.md 5.6)
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
  for (const LoggedEvent& e : s.replicas) s.wait(Lane::kCompute, e);
  s.replicas.clear();
  for (UnitId u = 0; u < static_cast<UnitId>(s.units.size()); ++u) {
    s.at(u).reduced = false, s.at(u).forwards = 0;
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
