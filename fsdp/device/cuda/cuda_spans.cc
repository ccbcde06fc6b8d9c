#include "fsdp/device/cuda/cuda_spans.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fsdp/core/errors.h"

namespace fsdp {

void CudaSpans::set_on(bool on, const std::function<Nanos(const CudaEvent&)>& wait) {
  on_ = on;
  ids_ = last_compute_ = 0;
  used_ = 0;
  bases_.clear(), open_.clear();
  for (auto& w : waits_) w.clear();
  context_.reset(), step_.reset(), last_end_.reset();
  if (!on) return;
  bases_.push_back({mark(compute_), 0});
  start_ = wait(*events_[bases_[0].event]);
}

std::size_t CudaSpans::mark(CudaRuntime::Stream stream) {
  if (used_ == events_.size()) {
    events_.push_back(std::make_unique<CudaEvent>(runtime_, CudaRuntime::Timing::kOn));
  }
  events_[used_]->record(stream);
  return used_++;
}

void CudaSpans::begin_step(int step, Nanos now) {
  if (!on_) return;
  const std::size_t event = last_end_ ? *last_end_ : mark(compute_);
  bases_.push_back({event, bases_.size() - 1});
  step_ = Step{step, ++ids_, event};
  step_number_ = step;
  last_end_.reset();
  static_cast<void>(now);
}

void CudaSpans::end_step(Nanos now) {
  if (!on_ || !step_) return;
  clear_context(now);
  Open o;
  o.span.id = step_->id, o.span.rank = rank_, o.span.step = step_->number, o.span.lane = Lane::kHost;
  o.span.kind = SpanKind::kStep, o.span.issued = now;
  o.begin = step_->begin, o.end = mark(compute_), o.base = bases_.size() - 1;
  last_end_ = o.end;
  open_.push_back(std::move(o));
  step_.reset();
}

void CudaSpans::set_context(const WorkTag& tag, Nanos now) {
  if (!on_ || !step_) return;
  close_context(now);
  context_ = Context{tag, begin(Lane::kCompute, tag, compute_, now)};
}

void CudaSpans::close_context(Nanos) {
  if (!context_ || context_->id == 0) return;
  end(context_->id, compute_);
  context_->id = 0;
}

void CudaSpans::reopen_context(Nanos now) {
  if (context_ && context_->id == 0) context_->id = begin(Lane::kCompute, context_->tag, compute_, now);
}

void CudaSpans::clear_context(Nanos now) {
  close_context(now);
  context_.reset();
}

std::uint32_t CudaSpans::begin(Lane lane, const WorkTag& tag, CudaRuntime::Stream stream, Nanos now) {
  Open o;
  o.span.id = ++ids_, o.span.rank = rank_, o.span.step = step_number_, o.span.lane = lane, o.span.kind = tag.kind;
  o.span.unit = tag.unit, o.span.pass = tag.pass, o.span.bytes = tag.bytes, o.span.issued = now;
  o.span.waits = std::exchange(waits_[static_cast<std::size_t>(lane)], {});
  o.begin = o.end = mark(stream), o.base = bases_.size() - 1;
  if (lane == Lane::kCompute) last_compute_ = o.span.id;
  open_.push_back(std::move(o));
  return ids_;
}

void CudaSpans::end(std::uint32_t id, CudaRuntime::Stream stream) {
  const auto o = std::find_if(open_.rbegin(), open_.rend(), [id](const Open& x) { return x.span.id == id; });
  SHARDSCOPE_CHECK(o != open_.rend(), std::to_string(id));
  o->end = mark(stream);
}

void CudaSpans::waited(Lane lane, std::uint32_t span) {
  if (on_ && span != 0) waits_[static_cast<std::size_t>(lane)].push_back(span);
}

Nanos CudaSpans::elapsed(std::size_t begin, std::size_t end) const {
  if (begin == end) return 0;
  float ms = 0;
  check_cuda(runtime_, runtime_.event_elapsed(&ms, events_[begin]->get(), events_[end]->get()), "cudaEventElapsedTime");
  return std::llround(static_cast<double>(ms) * 1e6);
}

std::vector<Span> CudaSpans::take() {
  std::vector<Nanos> at{start_};
  for (std::size_t b = 1; b < bases_.size(); ++b) {
    at.push_back(at[bases_[b].from] + elapsed(bases_[bases_[b].from].event, bases_[b].event));
  }
  std::vector<Span> spans;
  for (Open& o : open_) {
    o.span.begin = at[o.base] + elapsed(bases_[o.base].event, o.begin);
    o.span.end = at[o.base] + elapsed(bases_[o.base].event, o.end);
    spans.push_back(std::move(o.span));
  }
  open_.clear();
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.id < b.id; });
  return spans;
}

}  // namespace fsdp
