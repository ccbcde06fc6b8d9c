// Ranges for tools that watch the process (NVTX, the correlation ids of CUPTI): what a thread is at, as it happens,
// beside the spans that a device records for itself. A device tells a RangeSink; without one it pays a test of a
// pointer.
#pragma once
#include <optional>

#include "fsdp/device/device.h"

namespace fsdp {

// Ranges nest, and belong to the thread that pushes them. Any thread may call. Never throws: a watcher that fails must
// not fail the run.
class RangeSink {
 public:
  virtual ~RangeSink() = default;
  // `step`: the step in which it happens. A tag of kind kStep is the step itself.
  virtual void push(const WorkTag& tag, int step) noexcept = 0;
  virtual void pop() noexcept = 0;
};

// One range on the calling thread, for as long as this lives. `sink` may be null.
class ScopedRange {
 public:
  ScopedRange(RangeSink* sink, const WorkTag& tag, int step) : sink_(sink) {
    if (sink_) sink_->push(tag, step);
  }
  ~ScopedRange() {
    if (sink_) sink_->pop();
  }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;

 private:
  RangeSink* const sink_;
};

// The host thread's ranges: a step, and inside it one compute context at a time, as Device::compute_context cuts them.
// Balanced whatever the order of calls: a context ends before its step does. Used from the device's host thread.
class HostRanges {
 public:
  explicit HostRanges(RangeSink* sink) : sink_(sink) {}
  ~HostRanges() { end_step(); }
  HostRanges(const HostRanges&) = delete;
  HostRanges& operator=(const HostRanges&) = delete;

  RangeSink* sink() const { return sink_; }
  int step() const { return step_; }

  void begin_step(int step);
  void end_step();
  void context(const WorkTag& tag);  // ends the one before; the same again goes on
  void clear_context();

 private:
  RangeSink* const sink_;
  bool in_step_ = false;
  int step_ = 0;
  std::optional<WorkTag> context_;
};

}  // namespace fsdp
