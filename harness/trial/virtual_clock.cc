#include "harness/trial/virtual_clock.h"

#include <algorithm>
#include <cmath>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/wire.h"

namespace harness {
namespace {
fsdp::Nanos nanos(double us) { return static_cast<fsdp::Nanos>(std::llround(us * 1e3)); }
}  // namespace

fsdp::Nanos arrival_wait(const ArrivalSkew& skew, int count, int stride) {
  fsdp::Nanos own = 0, last = 0;
  for (const auto& [rank, by] : skew) {
    if (rank == 0) own = by;
    if (rank % stride == 0 && rank / stride < count) last = std::max(last, by);
  }
  return std::max<fsdp::Nanos>(0, last - own);
}

VirtualClock::VirtualClock(const CostModel& model, int world, const VirtualWire& wire, const ArrivalSkew& skew,
                           fsdp::VirtualDevice& device)
    : model_(model),
      world_(world),
      wire_(wire),
      skew_(skew),
      device_(device),
      contention_(model.hardware().contention) {}

GroupShape VirtualClock::shape_of(fsdp::Communicator c) const {
  const Topology& t = model_.topology();
  return c.role == fsdp::Communicator::kReplica ? t.replica(c.ranks) : t.shard(group_size(c));
}

fsdp::Nanos VirtualClock::wait_for_last(fsdp::Communicator c) const {
  return arrival_wait(skew_, group_size(c), c.role == fsdp::Communicator::kReplica ? c.ranks : 1);
}

void VirtualClock::begin_step() {
  entered_.clear();
  optimizing_ = false;
}

// What the device spends for each pass over a unit and for each step, apart from operators.
fsdp::Nanos VirtualClock::once_per_pass() {
  const Hardware& h = model_.hardware();
  const fsdp::WorkTag& tag = device_.context();
  if (tag.kind == fsdp::SpanKind::kOptimizer) {
    if (std::exchange(optimizing_, true)) return 0;
    return nanos(h.optimizer_us + h.step_us);
  }
  if (tag.unit == fsdp::kNoUnit || tag.kind != fsdp::SpanKind::kCompute) return 0;
  const auto unit = static_cast<std::size_t>(tag.unit), pass = static_cast<std::size_t>(tag.pass);
  if (entered_.size() <= unit) entered_.resize(unit + 1);
  return std::exchange(entered_[unit][pass], true) ? 0 : nanos(h.unit_pass_us);
}

void VirtualClock::ran(const OpCall& call) {
  const OpWork work = work_of(call);
  if (work.kind == OpKind::kFree) return;
  device_.host_work(model_.launch(work));
  const fsdp::Nanos cost = model_.op(call.name, work) + once_per_pass();
  const fsdp::Nanos begin = device_.next_begin(fsdp::Lane::kCompute);
  device_.charge(fsdp::Lane::kCompute, device_.context(), cost + contention_.extra(begin, cost));
}

void VirtualClock::enqueue(fsdp::Lane lane, const fsdp::CollectiveCall& call) {
  const int ranks = group_size(call.communicator);
  const auto full = fsdp::full_bytes(call, ranks);
  const double travelling = static_cast<double>(call.count) * fsdp::size_of(call.in_dtype) *
                            (call.kind == fsdp::CollectiveKind::kAllReduce ? 1 : ranks);
  fsdp::Nanos cost = model_.collective(call.kind, travelling, shape_of(call.communicator));
  if (wire_.on) {
    const fsdp::Nanos wire = fsdp::wire_time(call, ranks, wire_.latency, wire_.bytes_per_second);
    cost = std::max(cost, wire + (wire > 0 ? nanos(model_.hardware().wire_late_us) : 0));
  }
  // The kernel or the lane is held while the last member is on its way.
  cost += wait_for_last(call.communicator);
  device_.host_work(nanos(model_.hardware().collective_us));
  fsdp::WorkTag tag = fsdp::tag_of(call, ranks);
  tag.bytes = full;
  device_.charge(lane, tag, cost, channels_.of(call.communicator));
  const fsdp::Nanos end = device_.lane_free(lane);
  const fsdp::Nanos inside = model_.inside_node(call.kind, travelling, shape_of(call.communicator));
  if (cost > 0) contention_.communication(end - cost, end, static_cast<double>(inside) / static_cast<double>(cost));
}

}  // namespace harness
