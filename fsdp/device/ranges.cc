#include "fsdp/device/ranges.h"

namespace fsdp {
namespace {
bool same(const WorkTag& a, const WorkTag& b) {
  return a.kind == b.kind && a.unit == b.unit && a.pass == b.pass && a.bytes == b.bytes;
}
}  // namespace

void HostRanges::begin_step(int step) {
  if (!sink_) return;
  end_step();
  step_ = step;
  in_step_ = true;
  sink_->push({SpanKind::kStep, kNoUnit, Pass::kNone, 0}, step);
}

void HostRanges::end_step() {
  if (!in_step_) return;
  clear_context();
  sink_->pop();
  in_step_ = false;
}

void HostRanges::context(const WorkTag& tag) {
  if (!in_step_ || (context_ && same(*context_, tag))) return;
  clear_context();
  sink_->push(tag, step_);
  context_ = tag;
}

void HostRanges::clear_context() {
  if (!context_) return;
  sink_->pop();
  context_.reset();
}

}  // namespace fsdp
