// SpanRecorder: cuts the host thread's time into spans. Pure: whoever calls says what time it is, and only while on().
// Within a step the thread is in a compute context (a span on the compute lane), in a wait (a span on the host lane),
// or in the runtime's own bookkeeping (no span). Steps tile: a step that begins after another begins where that one
// ended.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "fsdp/core/span.h"
#include "fsdp/device/device.h"

namespace fsdp {

class SpanRecorder {
 public:
  explicit SpanRecorder(int rank) : rank_(rank) {}

  bool on() const { return on_; }
  bool in_step() const { return on_ && step_begin_.has_value(); }
  std::int32_t step() const { return step_; }
  void set_on(bool on);  // forgets the step and the context in progress; ids start again from 1

  std::uint32_t next_id() { return ++last_id_; }

  // Where the step that begins now has to begin, if a step ended before it.
  std::optional<Nanos> tiled_begin() const { return last_end_; }
  void begin_step(int step, Nanos t);
  void end_step(Nanos t);
  void set_context(const WorkTag& tag, Nanos t);
  void clear_context(Nanos t);
  bool has_context(const WorkTag& tag) const;
  bool has_context() const { return context_.has_value(); }
  // The thread was blocked in [begin, end) on work `waited` (span id; 0: unknown) that `tag` describes.
  void add_wait(SpanKind reason, const WorkTag& tag, std::uint32_t waited, Nanos begin, Nanos end);

  std::vector<Span> take();

 private:
  struct Context {
    std::uint32_t id;
    WorkTag tag;
    Nanos begin;
  };
  void close_context(Nanos t);
  Span make(std::uint32_t id, Lane lane, SpanKind kind, const WorkTag& tag, Nanos begin, Nanos end) const;

  const int rank_;
  bool on_ = false;
  std::uint32_t last_id_ = 0, step_id_ = 0;
  std::int32_t step_ = 0;
  std::optional<Nanos> step_begin_, last_end_;
  std::optional<Context> context_;
  std::vector<Span> spans_;
};

}  // namespace fsdp
