#include "fsdp/schedule/scheduler_state.h"

namespace fsdp {

bool Scheduler::State::gather(UnitId u, bool prefetch) {
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

void Scheduler::State::send_gather(UnitId u, int slot, bool prefetch) {
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

void Scheduler::State::cast(UnitId u) {
  note({.verb = Verb::kCast, .lane = Lane::kAllGather, .unit = u, .pass = pass});
  device.compute_context({SpanKind::kCopy, u, pass, at(u).traits.unsharded_bytes});
  memory.cast_shard(u);
  device.host_context();
}

void Scheduler::State::release_unsharded(UnitId u) {
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

void Scheduler::State::drop_group_shard(UnitId u) {
  if (!at(u).has_group_shard) return;
  memory.drop_group_shard(u);
  at(u).has_group_shard = false;
}

void Scheduler::State::await_gather(Unit& unit) {
  if (unit.state.phase() != UnitState::Phase::kGathering) return;
  wait(Lane::kCompute, unit.gathered);
  unit.state.arrived();
}

void Scheduler::State::make_ready(UnitId u) {
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

void Scheduler::State::drop_prefetched(UnitId u) {
  await_gather(at(u));
  release_unsharded(u);
  ++stats.prefetch_unused;
}

void Scheduler::State::evict_prefetched() {
  for (UnitId u = 0; u < static_cast<UnitId>(units.size()); ++u)
    if (at(u).prefetched && at(u).counted) drop_prefetched(u);
}

void Scheduler::State::free_unused() {
  for (UnitId u = 0; u < static_cast<UnitId>(units.size()); ++u)
    if (at(u).prefetched && at(u).state.holds_memory()) drop_prefetched(u);
}

int Scheduler::State::depth_of(Pass p) const {
  if (p == Pass::kForward) return options.forward_prefetch;
  if (options.backward_prefetch == BackwardPrefetch::kPre) return options.backward_depth;
  return options.backward_prefetch == BackwardPrefetch::kPost ? 1 : 0;
}

void Scheduler::State::prefetch() {
  const PassOrder& order = order_of(pass);
  const int depth = depth_of(pass);
  if (depth == 0 || !order.following()) return;
  prefetch_window(order.order(), order.next(), depth, gathers, window);
  for (UnitId next : window)
    if (!gather(next, true)) break;
}

void Scheduler::State::demand(UnitId u) {
  Unit& unit = at(u);
  if (!unit.traits.gathers) return;
  const PassOrder& order = order_of(pass);
  if (unit.prefetched) {
    ++stats.prefetch_hits;
    unit.prefetched = false;
  } else if (unit.state.needs_gather() && depth_of(pass) > 0 && !order.order().empty() && !order.at_first_unit()) {
    ++stats.prefetch_misses;
  }
  gather(u, false);
}

}  // namespace fsdp
