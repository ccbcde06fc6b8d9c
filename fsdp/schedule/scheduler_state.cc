#include "fsdp/schedule/scheduler_state.h"

#include <algorithm>
#include <utility>

namespace fsdp {

Scheduler::State::State(std::vector<UnitTraits> traits, const SchedulerOptions& o, Device& d, Collectives& c,
                        UnitMemory& m, MemoryMeter* meter)
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

LoggedEvent Scheduler::State::record(Lane lane) {
  LoggedEvent e{device.record(lane), ++event_number};
  note({.verb = Verb::kRecord, .lane = lane, .event = e.number});
  return e;
}

void Scheduler::State::wait(Lane lane, const LoggedEvent& e, SpanKind reason) {
  if (e.number == 0) return;
  note({.verb = Verb::kWait, .lane = lane, .event = e.number});
  device.wait(lane, e.event, reason);
}

void Scheduler::State::count(CollectiveKind kind, UnitId unit, Bytes bytes, Dtype dtype) {
  last = {kind, unit, pass};
  for (std::uint64_t v :
       {std::uint64_t(kind) + 1, std::uint64_t(unit) + 1, std::uint64_t(bytes), std::uint64_t(dtype) + 1})
    hash = (hash ^ v) * 0x100000001B3ULL;
}

void Scheduler::State::resume_compute() {
  const UnitId unit = active.empty() ? kNoUnit : active.back();
  locate(unit, pass);
  device.compute_context({SpanKind::kCompute, unit, pass, 0});
}

void Scheduler::State::open(UnitId u) {
  active.push_back(u);
  note({.verb = Verb::kComputeBegin, .lane = Lane::kCompute, .unit = u, .pass = pass});
}

void Scheduler::State::close(UnitId u) {
  const auto it = std::find(active.rbegin(), active.rend(), u);
  if (it == active.rend()) return;  // swept at the end of backward: it never ran
  note({.verb = Verb::kComputeEnd, .lane = Lane::kCompute, .unit = u, .pass = pass});
  active.erase(std::next(it).base());
}

void Scheduler::State::enter(Pass p) {
  if (pass == p) return;
  leave();
  pass = p;
  active.clear();
  unused_before = stats.prefetch_unused;
  if (p == Pass::kForward || p == Pass::kBackward) order_of(p).begin();
}

void Scheduler::State::leave() {
  if (pass != Pass::kForward && pass != Pass::kBackward) return;
  if (order_of(pass).end())
    changed("the " + std::string(name_of(pass)) + " pass ended before all units of the last one had run");
  free_unused();
  tell_mistargets();
}

void Scheduler::State::tell_mistargets() {
  const std::int64_t unused = stats.prefetch_unused - unused_before;
  if (unused == 0 || !order_of(pass).fixed()) return;
  if (std::exchange(told_mistargets[pass == Pass::kBackward ? 1 : 0], true)) return;
  warnings.push_back("prefetch_order: " + std::to_string(unused) + " gathers ahead in one " +
                     std::string(name_of(pass)) +
                     " pass were freed unused, because other units ran first; name the units in the order they run");
}

void Scheduler::State::tell_never_entered(Unit& unit) {
  if (unit.entered || std::exchange(unit.told_unused, true)) return;
  warnings.push_back("unit " + unit.traits.name +
                     " was not entered by the forward of a step: its gradients are reduced as zeros; call its modules "
                     "through their call operator, or freeze what is not used");
}

void Scheduler::State::changed(const std::string& what) {
  ++stats.order_changes;
  warnings.push_back("order changed: " + what + "; gathered on demand, the order is recorded anew");
}

void Scheduler::State::visit(UnitId u) {
  if (order_of(pass).visit(u)) changed("at unit " + at(u).traits.name + " in " + std::string(name_of(pass)));
}

}  // namespace fsdp
