#include "fsdp/device/host/host_device.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "fsdp/device/wait_text.h"

namespace fsdp {
namespace {

// An event's id holds the queue (lowest bit) and the number of the work in it.
Event event_of(int channel, LaneQueue::Seq seq) { return {seq << 1 | static_cast<std::uint64_t>(channel)}; }
std::size_t channel_of(Event e) { return e.id & 1; }
LaneQueue::Seq seq_of(Event e) { return e.id >> 1; }

bool is_comm(Lane lane) { return lane != Lane::kHost && lane != Lane::kCompute; }

}  // namespace

HostDevice::HostDevice(const Options& options) : options_(options), recorder_(options.rank), ranges_(options.ranges) {
  const std::string rank = std::to_string(options.rank);
  queues_[0] = std::make_unique<LaneQueue>("comm " + rank, options.timeout, options.ranges);
  if (!options.shared_channel)
    queues_[1] = std::make_unique<LaneQueue>("reduce " + rank, options.timeout, options.ranges);
}

HostDevice::~HostDevice() = default;

Nanos HostDevice::now() const { return steady_now(); }

Event HostDevice::record(Lane lane) {
  if (!is_comm(lane)) return {};
  const LaneQueue::Seq seq = last_[static_cast<std::size_t>(lane)];
  const LaneQueue& queue = queue_of(lane);
  // A poisoned lane's events stay pending, so that the next wait throws.
  if (seq == 0 || (queue.reached(seq) && !queue.poisoned())) return {};
  return event_of(channel_of(lane), seq);
}

void HostDevice::wait(Lane lane, Event event, SpanKind reason) {
  if (!event.pending()) return;
  if (!is_comm(lane)) return block(event, reason);
  const auto channel = static_cast<std::size_t>(channel_of(lane));
  if (channel == fsdp::channel_of(event)) return;  // one queue: its order is enough
  // A piece of work that waits, without a span. If the other queue fails, this one fails with the same error.
  const LaneQueue* other = queues_[fsdp::channel_of(event)].get();
  const WorkTag tag = other->reached(seq_of(event)) ? WorkTag{} : other->info_of(seq_of(event)).tag;
  LaneQueue::Info info;
  info.lane = lane;
  info.tag = tag;
  last_[static_cast<std::size_t>(lane)] =
      queue_of(lane).submit(info, [other, seq = seq_of(event), timeout = options_.timeout, tag] {
        if (!other->wait(seq, timeout)) throw timed_out("host device", timeout, tag);
        other->rethrow_if_poisoned();
      });
}

void HostDevice::synchronize(Event event) {
  if (event.pending()) block(event, SpanKind::kWait);
}

void HostDevice::block(Event event, SpanKind reason) {
  const LaneQueue& queue = *queues_[fsdp::channel_of(event)];
  const LaneQueue::Seq seq = seq_of(event);
  if (!queue.reached(seq)) {
    const LaneQueue::Info& awaited = queue.info_of(seq);
    const bool recording = recorder_.in_step();
    const Nanos begin = recording ? steady_now() : 0;
    const bool in_time = queue.wait(seq, options_.timeout);
    if (recording) recorder_.add_wait(reason, awaited.tag, awaited.span_id, begin, steady_now());
    if (!in_time) throw timed_out("host device", options_.timeout, awaited.tag);
  }
  queue.rethrow_if_poisoned();
}

void HostDevice::compute_context(WorkTag tag) {
  ranges_.context(tag);
  if (recorder_.in_step() && !recorder_.has_context(tag)) recorder_.set_context(tag, steady_now());
}

void HostDevice::host_context() {
  ranges_.clear_context();
  if (recorder_.in_step() && recorder_.has_context()) recorder_.clear_context(steady_now());
}

void HostDevice::begin_step(int step) {
  ranges_.begin_step(step);
  if (!recorder_.on()) return;
  const std::optional<Nanos> previous_end = recorder_.tiled_begin();
  recorder_.begin_step(step, previous_end ? *previous_end : steady_now());
}

void HostDevice::end_step() {
  ranges_.end_step();
  if (recorder_.in_step()) recorder_.end_step(steady_now());
}

void HostDevice::set_recording(bool on) { recorder_.set_on(on); }

std::vector<Span> HostDevice::take_spans() {
  drain();
  std::vector<Span> all = recorder_.take();
  for (const auto& queue : queues_) {
    if (!queue) continue;
    std::vector<Span> lane = queue->take_spans();
    all.insert(all.end(), std::make_move_iterator(lane.begin()), std::make_move_iterator(lane.end()));
  }
  std::sort(all.begin(), all.end(), [](const Span& a, const Span& b) { return a.id < b.id; });
  return all;
}

LaneQueue::Info HostDevice::info_for(Lane lane, const WorkTag& tag) {
  SHARDSCOPE_CHECK(is_comm(lane), "lane " + std::string(name_of(lane)));
  LaneQueue::Info info;
  info.lane = lane;
  info.tag = tag;
  info.ranged = ranges_.sink() != nullptr;
  info.step = ranges_.step();
  if (recorder_.on()) {
    info.span_id = recorder_.next_id();
    info.rank = options_.rank;
    info.step = recorder_.step();
    info.issued = steady_now();
  }
  return info;
}

bool HostDevice::idle() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const auto& q) { return !q || q->idle(); });
}

void HostDevice::drain() {
  for (std::size_t channel = 0; channel < queues_.size(); ++channel) {
    if (const auto& queue = queues_[channel]; queue && queue->last_submitted() != 0) {
      block(event_of(static_cast<int>(channel), queue->last_submitted()), SpanKind::kWait);
    }
  }
}

void HostDevice::cancel() noexcept {
  for (const auto& queue : queues_) {
    if (queue) queue->cancel();
  }
}

}  // namespace fsdp
