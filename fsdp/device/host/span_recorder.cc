#include "fsdp/device/host/span_recorder.h"

#include <utility>

namespace fsdp {

void SpanRecorder::set_on(bool on) {
  on_ = on;
  last_id_ = 0;
  step_begin_.reset(), last_end_.reset(), context_.reset();
  if (on) spans_.reserve(4096);
}

void SpanRecorder::begin_step(int step, Nanos t) {
  step_ = step;
  step_id_ = next_id();
  step_begin_ = t;
  last_end_.reset();
}

void SpanRecorder::end_step(Nanos t) {
  if (!step_begin_) return;
  clear_context(t);
  spans_.push_back(make(step_id_, Lane::kHost, SpanKind::kStep, WorkTag{}, *step_begin_, t));
  step_begin_.reset();
  last_end_ = t;
}

bool SpanRecorder::has_context(const WorkTag& tag) const {
  return context_ && context_->tag.kind == tag.kind && context_->tag.unit == tag.unit &&
         context_->tag.pass == tag.pass && context_->tag.bytes == tag.bytes;
}

void SpanRecorder::set_context(const WorkTag& tag, Nanos t) {
  close_context(t);
  context_ = Context{next_id(), tag, t};
}

void SpanRecorder::clear_context(Nanos t) {
  close_context(t);
  context_.reset();
}

void SpanRecorder::add_wait(SpanKind reason, const WorkTag& tag, std::uint32_t waited, Nanos begin, Nanos end) {
  close_context(begin);
  Span wait = make(next_id(), Lane::kHost, reason, tag, begin, end);
  if (waited != 0) wait.waits.push_back(waited);
  spans_.push_back(std::move(wait));
  if (context_) *context_ = Context{next_id(), context_->tag, end};
}

std::vector<Span> SpanRecorder::take() {
  last_end_.reset();
  return std::exchange(spans_, {});
}

void SpanRecorder::close_context(Nanos t) {
  if (!context_ || context_->begin == t) return;
  const Context& c = *context_;
  spans_.push_back(make(c.id, Lane::kCompute, c.tag.kind, c.tag, c.begin, t));
}

Span SpanRecorder::make(std::uint32_t id, Lane lane, SpanKind kind, const WorkTag& tag, Nanos begin, Nanos end) const {
  return {id, rank_, step_, lane, kind, tag.unit, tag.pass, begin, begin, end, tag.bytes, {}};
}

}  // namespace fsdp
