// CudaDevice: the CUDA world. The compute lane is the stream that the model's kernels run on; all-gathers,
// reduce-scatters and all-reduces have streams of high priority. The host only issues: waiting on a lane is an order
// between streams, and the host blocks in synchronize() and drain() alone, by asking again and again, with a deadline.
//
// Events come from a ring of CUDA events without timing; one that has left the ring is reached. While recording, events
// with timing bracket what lanes do (cuda_spans.h).
#pragma once
#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "fsdp/device/cuda/cuda_api.h"
#include "fsdp/device/cuda/cuda_spans.h"
#include "fsdp/device/device.h"
#include "fsdp/device/ranges.h"

namespace fsdp {

class CudaDevice final : public Device {
 public:
  struct Options {
    int rank = 0;
    Nanos timeout = 60'000'000'000;         // of every wait of the host
    CudaRuntime::Stream compute = nullptr;  // where the model's kernels go
    RangeSink* ranges = nullptr;            // told of steps, contexts and what is issued to lanes; outlives the device
  };
  // Who knows more about what the host waits for: the collectives.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void check() = 0;                                         // throws if a communicator or a peer has failed
    [[noreturn]] virtual void timed_out(const WorkTag& awaited) = 0;  // throws what is known about it
  };

  // `runtime` outlives this. Throws Error naming the call.
  CudaDevice(CudaRuntime& runtime, const Options& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

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

  CudaRuntime& runtime() { return runtime_; }
  CudaRuntime::Stream stream(Lane lane) const;

  // Puts work on a comm lane: `issue` enqueues on the lane's stream. What it throws poisons the device: nothing is
  // issued any more, and the next wait of the host throws it.
  void submit(Lane lane, const WorkTag& tag, const std::function<void(CudaRuntime::Stream)>& issue);
  void poison(std::exception_ptr error);
  bool poisoned() const { return error_ != nullptr; }

  bool reached(Event event);                                  // does not block
  void set_watcher(Watcher* watcher) { watcher_ = watcher; }  // null: none
  // All lanes are done with what was issued to them. Never throws: what cannot be asked is not idle.
  bool idle() noexcept;
  // Blocks the host until idle().
  void drain();
  // Waits until lanes are done, as long as the timeout at most: for clean-up, when communicators have been aborted.
  void quiesce() noexcept;

 private:
  struct Slot {
    std::unique_ptr<CudaEvent> event;
    std::uint64_t id = 0;
    Lane lane = Lane::kCompute;
    WorkTag tag;             // of the last work on the lane
    std::uint32_t span = 0;  // its span
  };
  struct LaneState {
    WorkTag last;
    std::uint32_t last_span = 0;
  };
  static constexpr std::size_t kRing = 1024;

  LaneState& lane_at(Lane l) { return lanes_[static_cast<std::size_t>(l)]; }
  Slot* find(Event event);  // null: reached
  void block(const Slot& slot) { block(*slot.event, slot.tag); }
  void block(const CudaEvent& event, const WorkTag& awaited);
  void throw_if_poisoned() const;

  CudaRuntime& runtime_;
  const Options options_;
  std::array<std::unique_ptr<CudaStream>, kLaneCount> streams_;
  std::array<LaneState, kLaneCount> lanes_;
  std::vector<Slot> ring_;
  std::uint64_t recorded_ = 0;
  std::exception_ptr error_;
  Watcher* watcher_ = nullptr;
  CudaSpans spans_;
  HostRanges ranges_;
};

}  // namespace fsdp
