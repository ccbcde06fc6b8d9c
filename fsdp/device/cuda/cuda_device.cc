#include "fsdp/device/cuda/cuda_device.h"

#include <algorithm>
#include <string>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "fsdp/device/wait_text.h"

namespace fsdp {
namespace {

constexpr int kSpins = 200;               // questions asked in a row before the host sleeps between them
constexpr Nanos kShortestSleep = 10'000;  // an all-gather of a small unit takes about as long
constexpr Nanos kLongestSleep = 500'000;
constexpr Nanos kCheckInterval = 2'000'000;  // between looks at communicators and peers

bool is_comm(Lane lane) { return lane != Lane::kHost && lane != Lane::kCompute; }

// How long to sleep between questions: longer, the longer it takes.
class Patience {
 public:
  explicit Patience(Nanos timeout) : begin_(steady_now()), deadline_(begin_ + timeout) {}
  bool over() const { return steady_now() >= deadline_; }
  // True when it is time to look at communicators and peers again.
  bool pause() {
    if (++asked_ > kSpins) {
      sleep_until(std::min(deadline_, steady_now() + sleep_));
      sleep_ = std::min(kLongestSleep, sleep_ * 2);
    }
    const Nanos now = steady_now();
    if (now < checked_ + kCheckInterval) return false;
    checked_ = now;
    return true;
  }

 private:
  const Nanos begin_, deadline_;
  Nanos checked_ = 0, sleep_ = kShortestSleep;
  int asked_ = 0;
};

}  // namespace

CudaDevice::CudaDevice(CudaRuntime& runtime, const Options& options)
    : runtime_(runtime),
      options_(options),
      ring_(kRing),
      spans_(runtime, options.rank, options.compute),
      ranges_(options.ranges) {
  for (const Lane lane : {Lane::kAllGather, Lane::kReduceScatter, Lane::kAllReduce}) {
    streams_[static_cast<std::size_t>(lane)] = std::make_unique<CudaStream>(runtime, CudaRuntime::Priority::kHigh);
  }
}

CudaDevice::~CudaDevice() { quiesce(); }

Nanos CudaDevice::now() const { return steady_now(); }

CudaRuntime::Stream CudaDevice::stream(Lane lane) const {
  return is_comm(lane) ? streams_[static_cast<std::size_t>(lane)]->get() : options_.compute;
}

Event CudaDevice::record(Lane lane) {
  if (lane == Lane::kHost) return {};
  const std::uint64_t id = recorded_ + 1;
  Slot& slot = ring_[id % kRing];
  if (!slot.event) slot.event = std::make_unique<CudaEvent>(runtime_);
  if (slot.id != 0) block(slot);  // a thousand events ago: reached, but for a host far ahead
  slot.event->record(stream(lane));
  recorded_ = slot.id = id;
  slot.lane = lane;
  const LaneState& state = lane_at(lane);
  slot.tag = state.last;
  slot.span = lane == Lane::kCompute ? spans_.compute_span() : state.last_span;
  return {id};
}

CudaDevice::Slot* CudaDevice::find(Event event) {
  if (!event.pending()) return nullptr;
  Slot& slot = ring_[event.id % kRing];
  return slot.id == event.id ? &slot : nullptr;
}

void CudaDevice::wait(Lane lane, Event event, SpanKind reason) {
  if (lane == Lane::kHost) return synchronize(event);
  throw_if_poisoned();
  const Slot* slot = find(event);
  if (slot == nullptr || slot->lane == lane) return;  // a stream's order is enough
  const bool recording = spans_.on();
  const bool pauses = recording && lane == Lane::kCompute && spans_.has_context();
  if (pauses) spans_.close_context(now());
  // What the lane lacks is a place, not data: said by a span of the lane's own.
  const bool memory = recording && reason == SpanKind::kMemoryWait;
  const std::uint32_t waiting =
      memory ? spans_.begin(lane, {reason, slot->tag.unit, slot->tag.pass, 0}, stream(lane), now()) : 0;
  check_cuda(runtime_, runtime_.stream_wait_event(stream(lane), slot->event->get()), "cudaStreamWaitEvent");
  if (memory) spans_.end(waiting, stream(lane));
  spans_.waited(lane, slot->span);
  if (pauses) spans_.reopen_context(now());
}

void CudaDevice::synchronize(Event event) {
  throw_if_poisoned();
  if (const Slot* slot = find(event)) block(*slot);
  throw_if_poisoned();
}

void CudaDevice::block(const CudaEvent& event, const WorkTag& awaited) {
  Patience patience(options_.timeout);
  while (!event.reached()) {
    if (patience.over()) {
      if (watcher_ != nullptr) watcher_->timed_out(awaited);
      throw timed_out("cuda device", options_.timeout, awaited);
    }
    if (patience.pause() && watcher_ != nullptr) watcher_->check();
  }
}

void CudaDevice::compute_context(WorkTag tag) {
  ranges_.context(tag);
  lane_at(Lane::kCompute).last = tag;
  if (spans_.on()) spans_.set_context(tag, now());
}

void CudaDevice::host_context() {
  ranges_.clear_context();
  if (spans_.on()) spans_.clear_context(now());
}

void CudaDevice::begin_step(int step) {
  ranges_.begin_step(step);
  if (spans_.on()) spans_.begin_step(step, now());
}

void CudaDevice::end_step() {
  if (spans_.on()) spans_.end_step(now());
  ranges_.end_step();
}

void CudaDevice::set_recording(bool on) {
  drain();
  spans_.set_on(on, [this](const CudaEvent& event) {
    block(event, {});
    return now();
  });
  for (LaneState& lane : lanes_) lane.last_span = 0;
}

std::vector<Span> CudaDevice::take_spans() {
  drain();
  return spans_.take();
}

void CudaDevice::submit(Lane lane, const WorkTag& tag, const std::function<void(CudaRuntime::Stream)>& issue) {
  SHARDSCOPE_CHECK(is_comm(lane), "lane " + std::string(name_of(lane)));
  LaneState& state = lane_at(lane);
  state.last = tag;
  if (poisoned()) return;
  const ScopedRange range(ranges_.sink(), tag, ranges_.step());
  try {
    if (spans_.on()) state.last_span = spans_.begin(lane, tag, stream(lane), now());
    issue(stream(lane));
    if (spans_.on()) spans_.end(state.last_span, stream(lane));
  } catch (...) {
    poison(std::current_exception());
  }
}

void CudaDevice::poison(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
}

void CudaDevice::throw_if_poisoned() const {
  if (error_) std::rethrow_exception(error_);
}

bool CudaDevice::reached(Event event) {
  const Slot* slot = find(event);
  return slot == nullptr || slot->event->reached();
}

bool CudaDevice::idle() noexcept {
  try {
    for (const Lane lane : {Lane::kCompute, Lane::kAllGather, Lane::kReduceScatter, Lane::kAllReduce}) {
      const Slot* slot = find(record(lane));
      if (!slot->event->reached()) return false;
    }
    return true;
  } catch (...) {
    return false;
  }
}

void CudaDevice::drain() {
  throw_if_poisoned();
  for (const Lane lane : {Lane::kCompute, Lane::kAllGather, Lane::kReduceScatter, Lane::kAllReduce}) {
    block(*find(record(lane)));
  }
  throw_if_poisoned();
}

void CudaDevice::quiesce() noexcept {
  try {
    Patience patience(options_.timeout);
    while (!idle() && !patience.over()) patience.pause();
  } catch (...) {  // a broken device cannot be waited for
  }
}

}  // namespace fsdp
