#include "harness/trial/virtual_clock.h"

#include <algorithm>
#include <cmath>

#include "fsdp/comm/host_collectives.h"

namespace harness {
namespace {
bool is_backward(std::string_view name) { return name.ends_with("_backward") || name == "add_"; }
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

VirtualClock::VirtualClock(const CostModel& model, int world, const std::optional<fsdp::Wire>& wire,
                           const ArrivalSkew& skew, fsdp::VirtualDevice& device)
    : model_(model),
      world_(world),
      wire_(wire),
      skew_(skew),
      device_(device),
      slowest_(model.hardware().jitter * expected_maximum(world)),
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
  held_.clear();
  late_ = static_cast<fsdp::Nanos>(slowest_ * static_cast<double>(totals_.compute_ns));
  totals_ = {};
}

// What the host spends when it comes to a unit in a pass, in each micro-batch anew.
void VirtualClock::enter_unit() {
  const fsdp::WorkTag& tag = device_.context();
  if (tag.unit == fsdp::kNoUnit || tag.kind != fsdp::SpanKind::kCompute) return;
  if (std::exchange(pass_, tag.pass) == fsdp::Pass::kBackward && tag.pass == fsdp::Pass::kForward) entered_.clear();
  const auto unit = static_cast<std::size_t>(tag.unit), pass = static_cast<std::size_t>(tag.pass);
  if (entered_.size() <= unit) entered_.resize(unit + 1);
  if (!std::exchange(entered_[unit][pass], true)) device_.host_work(nanos(model_.hardware().unit_pass_us));
}

// What the device spends for each step, apart from operators.
fsdp::Nanos VirtualClock::once_per_step() {
  const Hardware& h = model_.hardware();
  if (device_.context().kind != fsdp::SpanKind::kOptimizer || std::exchange(optimizing_, true)) return 0;
  return nanos(h.optimizer_us + h.step_us);
}

void VirtualClock::ran(const OpCall& call) {
  const OpWork work = work_of(call);
  if (work.kind == OpKind::kFree) return;
  enter_unit();
  const fsdp::WorkTag& tag = device_.context();
  const Cost c{tag, model_.launch(work), model_.op(call.name, work) + model_.gaps(work) + once_per_step()};
  if (!model_.hardware().early_stop) return charge(c);
  // A block's forward operators in its backward are held back from each product on: another product shows that backward
  // needs them, an operator of backward that it does not.
  const bool backward = tag.kind == fsdp::SpanKind::kCompute && tag.pass == fsdp::Pass::kBackward;
  const bool again = backward && !is_backward(call.name), product = work.kind == OpKind::kGemm;
  if (!backward || (again && product))
    for (const Cost& held : held_) charge(held);
  if (!again || product) held_.clear();
  if (again && (product || !held_.empty()))
    held_.push_back(c);
  else
    charge(c);
}

void VirtualClock::charge(const Cost& c) {
  device_.host_work(c.launch);
  const fsdp::Nanos cost = c.device;
  const fsdp::Nanos begin = device_.next_begin(fsdp::Lane::kCompute);
  const fsdp::Nanos more = contention_.extra(begin, cost);
  totals_.contention_ns += more;
  totals_.compute_ns += cost;
  device_.charge(fsdp::Lane::kCompute, c.tag, cost + more);
}

void VirtualClock::enqueue(fsdp::Lane lane, const fsdp::CollectiveCall& call) {
  const int ranks = group_size(call.communicator);
  const auto full = fsdp::full_bytes(call, ranks);
  const double travelling = static_cast<double>(call.count) * fsdp::size_of(call.in_dtype) *
                            (call.kind == fsdp::CollectiveKind::kAllReduce ? 1 : ranks);
  fsdp::Nanos cost = model_.collective(call.kind, travelling, shape_of(call.communicator));
  if (wire_) {
    const fsdp::Nanos wire = fsdp::wire_time(call, ranks, *wire_);
    cost = std::max(cost, wire + (wire > 0 ? nanos(model_.hardware().wire_late_us) : 0));
  }
  // The kernel or the lane is held while the last member is on its way.
  cost += wait_for_last(call.communicator);
  const fsdp::Nanos late = std::exchange(late_, 0);
  totals_.late_ns += late;
  device_.host_work(nanos(model_.hardware().collective_us));
  fsdp::WorkTag tag = fsdp::tag_of(call, ranks);
  tag.bytes = full;
  device_.charge(lane, tag, cost + late, channels_.of(call.communicator));
  const fsdp::Nanos end = device_.lane_free(lane);
  const fsdp::Nanos busy = model_.contending(call.kind, travelling, shape_of(call.communicator));
  if (cost > 0) contention_.communication(end - cost, end, static_cast<double>(busy) / static_cast<double>(cost));
}

}  // namespace harness
