// VirtualDevice: lanes are time cursors. Single-threaded max/plus arithmetic in integer nanoseconds:
//   start = max(host, lane free, waited events, channel free), end = start + cost; each issue costs the host a launch
//   time.
// No event queue, no threads, no sleeping: exact tests.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/device/device.h"

namespace fsdp {

// Also the virtual image of a host device, where the thread that issues work is the compute lane: there issuing a
// computation ends when it is done, and waiting on the compute lane keeps the host.
struct VirtualDeviceOptions {
  Nanos launch_ns = 0;
  bool host_computes = false;
  Nanos wake_ns = 0;  // from an event to the host that slept for it; only where the host computes
};

class VirtualDevice final : public Device {
 public:
  explicit VirtualDevice(Nanos launch_ns = 0) : VirtualDevice(VirtualDeviceOptions{.launch_ns = launch_ns}) {}
  explicit VirtualDevice(const VirtualDeviceOptions& options) : options_(options) {}

  // Work of a known cost on a lane. A channel >= 0 is a communicator: its calls run one after the other in issue order.
  std::uint32_t charge(Lane lane, const WorkTag& tag, Nanos cost, int channel = -1);
  void host_work(Nanos cost) { host_ += cost; }  // the host is busy
  Nanos lane_free(Lane lane) const { return lane_at(lane).free; }
  // When work issued to the lane now would begin.
  Nanos next_begin(Lane lane) const;
  // What compute_context() said last: model code that only knows costs charges it with this tag.
  const WorkTag& context() const { return context_; }

  Nanos now() const override { return host_; }
  Event record(Lane lane) override;
  void wait(Lane lane, Event event, SpanKind reason = SpanKind::kWait) override;
  void synchronize(Event event) override;
  void compute_context(WorkTag tag) override { context_ = tag; }
  void host_context() override {}
  void begin_step(int step) override;
  void end_step() override;
  void set_recording(bool on) override { recording_ = on; }
  std::vector<Span> take_spans() override;

 private:
  struct LaneState {
    Nanos free = 0;   // end of the last work issued
    Nanos ready = 0;  // latest event waited for
    std::uint32_t last_span = 0;
    std::vector<std::uint32_t> waits;  // spans behind the events waited for since the last work
  };
  struct Reached {
    Nanos at;
    std::uint32_t span;
  };
  LaneState& lane_at(Lane l) { return lanes_[static_cast<std::size_t>(l)]; }
  const LaneState& lane_at(Lane l) const { return lanes_[static_cast<std::size_t>(l)]; }
  void close_step(Nanos at);
  void block_host(const Reached& r, SpanKind reason);

  VirtualDeviceOptions options_;
  Nanos host_ = 0;
  std::array<LaneState, kLaneCount> lanes_;
  std::vector<Nanos> channel_free_;
  std::vector<Reached> events_;  // id - 1 -> when
  WorkTag context_;
  bool recording_ = false;
  int step_ = 0;
  bool in_step_ = false;
  Nanos step_begin_ = 0;
  std::uint32_t next_span_ = 0;
  std::vector<Span> spans_;
};

// Numbers for communicators as they come: a virtual device's channels.
class VirtualChannels {
 public:
  int of(Communicator c);

 private:
  std::vector<Communicator> seen_;
};

// Collectives whose time is a function of the call. One representative rank stands for all.
class VirtualCollectives final : public Collectives {
 public:
  using Cost = std::function<Nanos(const CollectiveCall&)>;
  VirtualCollectives(VirtualDevice& device, int world, Cost cost)
      : device_(device), world_(world), cost_(std::move(cost)) {}

  int rank() const override { return 0; }
  int world() const override { return world_; }
  void enqueue(Lane lane, const CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override { return std::vector<std::uint64_t>(1, value); }
  void* allocate(Bytes) override { return nullptr; }
  void release(void*) noexcept override {}

 private:
  VirtualDevice& device_;
  int world_;
  Cost cost_;
  VirtualChannels channels_;
};

}  // namespace fsdp
