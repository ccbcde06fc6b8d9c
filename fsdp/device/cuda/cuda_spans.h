// CudaSpans: what the lanes of a CudaDevice did, from CUDA events with timing around it. A span of the compute lane is
// the time between its events on the stream: kernels and the gaps between them. Times are those of the steady clock at
// the start of the recording plus what the events measured (about half a microsecond).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fsdp/core/span.h"
#include "fsdp/device/cuda/cuda_api.h"
#include "fsdp/device/device.h"

namespace fsdp {

class CudaSpans {
 public:
  CudaSpans(CudaRuntime& runtime, int rank, CudaRuntime::Stream compute)
      : runtime_(runtime), rank_(rank), compute_(compute) {}

  bool on() const { return on_; }
  // Forgets what was recorded. `wait` blocks until an event just recorded is reached and returns the steady clock then:
  // times of spans count from there.
  void set_on(bool on, const std::function<Nanos(const CudaEvent&)>& wait);

  void begin_step(int step, Nanos now);
  void end_step(Nanos now);
  // Of the compute lane. close_context() ends a span; the context stays and reopen_context() begins the next.
  void set_context(const WorkTag& tag, Nanos now);
  void clear_context(Nanos now);
  bool has_context() const { return context_.has_value(); }
  void close_context(Nanos now);
  void reopen_context(Nanos now);

  // Around work on a stream; returns the span's id.
  std::uint32_t begin(Lane lane, const WorkTag& tag, CudaRuntime::Stream stream, Nanos now);
  void end(std::uint32_t id, CudaRuntime::Stream stream);
  // The lane's next span waited for another span.
  void waited(Lane lane, std::uint32_t span);

  std::uint32_t compute_span() const { return last_compute_; }
  // All lanes are idle.
  std::vector<Span> take();

 private:
  struct Open {
    Span span;
    std::size_t begin = 0, end = 0;  // into events_
    std::size_t base = 0;            // into bases_
  };
  // Time is measured from the begin of the step: floats of milliseconds lose nanoseconds over seconds.
  struct Base {
    std::size_t event = 0;
    std::size_t from = 0;  // the base before
  };
  std::size_t mark(CudaRuntime::Stream stream);
  void close();
  Nanos elapsed(std::size_t begin, std::size_t end) const;

  CudaRuntime& runtime_;
  const int rank_;
  const CudaRuntime::Stream compute_;
  bool on_ = false;
  Nanos start_ = 0;
  std::uint32_t ids_ = 0, last_compute_ = 0;
  std::vector<std::unique_ptr<CudaEvent>> events_;  // kept for reuse
  std::size_t used_ = 0;
  std::vector<Base> bases_;
  std::vector<Open> open_;
  std::vector<std::uint32_t> waits_[kLaneCount];
  struct Context {
    WorkTag tag;
    std::uint32_t id = 0;  // 0: closed
  };
  std::optional<Context> context_;
  struct Step {
    int number = 0;
    std::uint32_t id = 0;
    std::size_t begin = 0;
  };
  std::optional<Step> step_;
  std::optional<std::size_t> last_end_;  // steps tile
  int step_number_ = 0;
};

}  // namespace fsdp
