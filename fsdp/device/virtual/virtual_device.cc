#include "fsdp/device/virtual/virtual_device.h"

#include <algorithm>
#include <utility>

#include "fsdp/core/errors.h"

namespace fsdp {

std::uint32_t VirtualDevice::charge(Lane lane, const WorkTag& tag, Nanos cost, int channel) {
  SHARDSCOPE_CHECK(cost >= 0, std::to_string(cost));
  LaneState& l = lane_at(lane);
  const Nanos issued = host_;
  host_ += options_.launch_ns;
  Nanos begin = std::max({host_, l.free, l.ready});
  if (channel >= 0) {
    const auto at = static_cast<std::size_t>(channel);
    if (channel_free_.size() <= at) channel_free_.resize(at + 1);
    Nanos& wire = channel_free_[at];
    begin = std::max(begin, wire);
    wire = begin + cost;
  }
  l.free = begin + cost;
  if (options_.host_computes && lane == Lane::kCompute) host_ = l.free;
  const std::uint32_t id = ++next_span_;
  l.last_span = id;
  if (recording_) {
    Span s;
    s.id = id, s.step = step_, s.lane = lane, s.kind = tag.kind, s.unit = tag.unit, s.pass = tag.pass,
    s.bytes = tag.bytes;
    s.issued = issued, s.begin = begin, s.end = l.free;
    s.waits = std::move(l.waits);
    spans_.push_back(std::move(s));
  }
  l.waits.clear();
  return id;
}

Nanos VirtualDevice::next_begin(Lane lane) const {
  const LaneState& l = lane_at(lane);
  return std::max({host_ + options_.launch_ns, l.free, l.ready});
}

Event VirtualDevice::record(Lane lane) {
  const LaneState& l = lane_at(lane);
  const Nanos at = lane == Lane::kHost ? host_ : std::max(l.free, l.ready);
  events_.push_back({at, l.last_span});
  return {events_.size()};
}

void VirtualDevice::wait(Lane lane, Event event, SpanKind reason) {
  if (!event.pending()) return;
  if (lane == Lane::kHost) return synchronize(event);
  const Reached r = events_[event.id - 1];
  LaneState& l = lane_at(lane);
  // What the lane lacks is a place, not data: said by a span of the lane's own, for the partition.
  if (const Nanos from = std::max({host_, l.free, l.ready});
      recording_ && reason == SpanKind::kMemoryWait && from < r.at) {
    Span s;
    s.id = ++next_span_, s.step = step_, s.lane = lane, s.kind = reason, s.issued = host_, s.begin = from, s.end = r.at;
    spans_.push_back(std::move(s));
  }
  l.ready = std::max(l.ready, r.at);
  if (recording_ && r.span != 0) l.waits.push_back(r.span);
  if (options_.host_computes && lane == Lane::kCompute && host_ < r.at) block_host(r, reason);
}

void VirtualDevice::block_host(const Reached& r, SpanKind reason) {
  const Nanos from = std::exchange(host_, r.at + options_.wake_ns);
  if (!recording_ || reason == SpanKind::kMemoryWait) return;
  Span s;
  s.id = ++next_span_, s.step = step_, s.lane = Lane::kHost, s.kind = reason;
  s.issued = s.begin = from, s.end = host_;
  if (r.span != 0) s.waits.push_back(r.span);
  const auto awaited = std::find_if(spans_.rbegin(), spans_.rend(), [&](const Span& a) { return a.id == r.span; });
  if (awaited != spans_.rend()) s.unit = awaited->unit, s.pass = awaited->pass, s.bytes = awaited->bytes;
  spans_.push_back(std::move(s));
}

void VirtualDevice::synchronize(Event event) {
  if (event.pending()) host_ = std::max(host_, events_[event.id - 1].at);
}

void VirtualDevice::close_step(Nanos at) {
  if (!in_step_ || !recording_) return;
  Span s;
  s.id = ++next_span_, s.step = step_, s.lane = Lane::kHost, s.kind = SpanKind::kStep;
  s.issued = s.begin = step_begin_, s.end = at;
  spans_.push_back(std::move(s));
}

// The step begins when the compute lane reaches the marker; windows tile the run.
void VirtualDevice::begin_step(int step) {
  const LaneState& c = lane_at(Lane::kCompute);
  const Nanos at = std::max({host_, c.free, c.ready});
  step_ = step;
  step_begin_ = at;
  in_step_ = true;
}

void VirtualDevice::end_step() {
  const LaneState& c = lane_at(Lane::kCompute);
  close_step(std::max({host_, c.free, c.ready}));
  in_step_ = false;
}

std::vector<Span> VirtualDevice::take_spans() { return std::exchange(spans_, {}); }

int VirtualChannels::of(Communicator c) {
  const auto at = std::find(seen_.begin(), seen_.end(), c);
  const auto channel = at - seen_.begin();
  if (at == seen_.end()) seen_.push_back(c);
  return static_cast<int>(channel);
}

void VirtualCollectives::enqueue(Lane lane, const CollectiveCall& call) {
  const SpanKind kind = call.kind == CollectiveKind::kAllGather       ? SpanKind::kAllGather
                        : call.kind == CollectiveKind::kReduceScatter ? SpanKind::kReduceScatter
                        : call.kind == CollectiveKind::kAllReduce     ? SpanKind::kAllReduce
                                                                      : SpanKind::kOtherCollective;
  const bool gathers = call.kind == CollectiveKind::kAllGather;
  const Count full = call.count * (kind == SpanKind::kAllReduce ? 1 : group_size(call.communicator));
  const Bytes bytes = full * size_of(gathers ? call.out_dtype : call.in_dtype);
  device_.charge(lane, {kind, call.unit, call.pass, bytes}, cost_(call), channels_.of(call.communicator));
}

}  // namespace fsdp
