#include "fsdp/schedule/scheduler_state.h"

namespace fsdp {

void Scheduler::State::retire_oldest_reduce(SpanKind reason) {
  const Reduce r = reduces.front();
  reduces.pop_front();
  wait(Lane::kCompute, r.done, reason);
  note({.verb = Verb::kReleaseReduce, .lane = Lane::kCompute, .unit = r.unit, .pass = pass, .slot = r.slot});
  memory.release_reduce_input(r.unit);
  free_reduce_slots.push_back(r.slot);
}

void Scheduler::State::reduce(UnitId u) {
  Unit& unit = at(u);
  // Without a buffer in the slot it is the earlier reduction that is waited for, not a place.
  while (free_reduce_slots.empty()) retire_oldest_reduce(unit.traits.packs ? SpanKind::kMemoryWait : SpanKind::kWait);
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
  const bool across = unit.traits.replicates && sync == GradientSync::kFull;
  if (across && unit.traits.keeps_group_sum) memory.acquire_group_sum(u);
  const Lane lane = unit.traits.all_reduces ? Lane::kAllReduce : Lane::kReduceScatter;
  wait(lane, record(Lane::kCompute));
  CollectiveCall call = memory.reduce_call(u);
  if (options.own_reduce_scatter_communicator && lane == Lane::kReduceScatter)
    call.communicator.role = Communicator::kReduceScatter;
  send(u, lane, slot, call);
  reduces.push_back({u, slot, record(lane)});
  if (across) replicate(u, reduces.back().done);
}

void Scheduler::State::send(UnitId u, Lane lane, int slot, CollectiveCall call) {
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

void Scheduler::State::replicate(UnitId u, const LoggedEvent& scattered) {
  wait(Lane::kAllReduce, scattered);
  send(u, Lane::kAllReduce, -1, memory.replica_call(u));
  replicas.push_back({u, record(Lane::kAllReduce)});
}

void Scheduler::State::await_replicas() {
  for (const Replica& r : replicas) {
    wait(Lane::kCompute, r.done);
    if (at(r.unit).traits.keeps_group_sum) memory.release_group_sum(r.unit);
  }
  replicas.clear();
}

void Scheduler::State::accumulate(UnitId u) {
  device.compute_context({SpanKind::kCopy, u, pass, at(u).traits.unsharded_bytes});
  note({.verb = Verb::kAccumulate, .lane = Lane::kCompute, .unit = u, .pass = pass});
  memory.accumulate_unsharded(u);
  device.host_context();
}

void Scheduler::State::pack_alone(UnitId u) {  // nobody to reduce with: gradients go straight to their place
  Unit& unit = at(u);
  if (!unit.has_gradient) memory.acquire_gradient(u);
  unit.has_gradient = true;
  device.compute_context({SpanKind::kCopy, u, pass, unit.traits.unsharded_bytes});
  note({.verb = Verb::kPack, .lane = Lane::kCompute, .unit = u, .pass = pass});
  memory.pack_gradients(u);
  device.host_context();
}

void Scheduler::State::take_gradients(UnitId u) {
  const Unit& unit = at(u);
  if (sync == GradientSync::kNone || unit.forwards > 0)
    accumulate(u);
  else if (unit.traits.reduces)
    reduce(u);
  else
    pack_alone(u);
}

}  // namespace fsdp
