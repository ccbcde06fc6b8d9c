// HostDevice: the host world. Comm lanes are threads with a FIFO; the compute lane is the calling thread, so what it
// records is reached at once and waiting on it blocks.
//
// With a shared channel (one communicator) all comm lanes share one thread: work runs in issue order, whatever lane it
// was issued to. Without, the reduce-scatter lane has a thread of its own.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fsdp/device/device.h"
#include "fsdp/device/host/lane_queue.h"
#include "fsdp/device/host/span_recorder.h"
#include "fsdp/device/ranges.h"

namespace fsdp {

class HostDevice final : public Device {
 public:
  struct Options {
    int rank = 0;
    // Of every wait of the host. A little longer than the transports' own, so that theirs, which know more, speak
    // first.
    Nanos timeout = 60'000'000'000;
    bool shared_channel = true;
    RangeSink* ranges = nullptr;  // told of steps, contexts and lane work, recording or not; outlives the device
  };

  explicit HostDevice(const Options& options);
  ~HostDevice() override;
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  Nanos now() const override;
  Event record(Lane lane) override;
  void wait(Lane lane, Event event, SpanKind reason = SpanKind::kWait) override;
  void synchronize(Event event) override;
  void compute_context(WorkTag tag) override;
  void host_context() override;
  void begin_step(int step) override;
  void end_step() override;
  void set_recording(bool on) override;
  std::vector<Span> take_spans() override;

  // Puts work on a comm lane; returns the id of its span, 0 while not recording. What the callable returns is not used.
  // It runs on the lane's thread; at most LaneQueue::kWorkBytes of captures.
  template <class F>
  std::uint32_t submit(Lane lane, const WorkTag& tag, F&& work) {
    const LaneQueue::Info info = info_for(lane, tag);
    last_[static_cast<std::size_t>(lane)] = queue_of(lane).submit(info, std::forward<F>(work));
    return info.span_id;
  }

  bool shared_channel() const { return queues_[1] == nullptr; }
  // Index of the thread that serves a comm lane: lanes with the same index run in issue order.
  int channel_of(Lane lane) const { return lane == Lane::kReduceScatter && !shared_channel() ? 1 : 0; }
  // All comm lanes are done with what was issued to them.
  bool idle() const;
  // Blocks the host until idle(); throws what a lane failed with.
  void drain();
  // Drops what has not started and waits for what has: for clean-up after a failure.
  void cancel() noexcept;

 private:
  LaneQueue& queue_of(Lane lane) { return *queues_[static_cast<std::size_t>(channel_of(lane))]; }
  LaneQueue::Info info_for(Lane lane, const WorkTag& tag);
  void block(Event event, SpanKind reason);

  const Options options_;
  std::array<std::unique_ptr<LaneQueue>, 2> queues_;  // second: the reduce-scatter lane's own thread, or null
  std::array<LaneQueue::Seq, kLaneCount> last_{};     // last work issued to each lane, numbered by its queue
  SpanRecorder recorder_;
  HostRanges ranges_;
};

}  // namespace fsdp
