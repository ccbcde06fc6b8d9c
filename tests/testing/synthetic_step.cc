#include "tests/testing/synthetic_step.h"

#include <algorithm>
#include <array>

namespace testing_support {
namespace {

using fsdp::Lane;
using fsdp::Nanos;
using fsdp::Pass;
using fsdp::Span;
using fsdp::SpanKind;
using fsdp::UnitId;

class Cursors {
 public:
  explicit Cursors(const SyntheticStep& s) : s_(s) {}

  // Returns the id of the new span, which starts when the host has issued it, its lane (collectives: the wire) is free
  // and all of `waits` have ended.
  std::uint32_t issue(SpanKind kind, Lane lane, UnitId unit, Pass pass, Nanos length, fsdp::Bytes bytes,
                      std::vector<std::uint32_t> waits) {
    host_ += s_.launch;
    Nanos& free = is_collective(kind) ? wire_ : lanes_[static_cast<std::size_t>(lane)];
    Span span;
    span.id = static_cast<std::uint32_t>(spans_.size() + 1);
    span.rank = s_.rank, span.step = s_.step, span.lane = lane, span.kind = kind, span.unit = unit, span.pass = pass;
    span.issued = host_, span.bytes = bytes, span.waits = std::move(waits);
    span.begin = std::max(host_, free);
    for (const std::uint32_t id : span.waits) span.begin = std::max(span.begin, spans_[id - 1].end);
    span.end = span.begin + length;
    free = span.end;
    spans_.push_back(span);
    return span.id;
  }
  std::vector<Span> finish() {
    Nanos end = host_;
    for (const Span& s : spans_) end = std::max(end, s.end);
    Span step;
    step.id = static_cast<std::uint32_t>(spans_.size() + 1);
    step.rank = s_.rank, step.step = s_.step, step.kind = SpanKind::kStep, step.end = end;
    spans_.push_back(step);
    return std::move(spans_);
  }

 private:
  const SyntheticStep& s_;
  Nanos host_ = 0, wire_ = 0;
  std::array<Nanos, fsdp::kLaneCount> lanes_{};
  std::vector<Span> spans_;
};

class Step {
 public:
  explicit Step(const SyntheticStep& s)
      : s_(s),
        n_(static_cast<int>(s.units.size())),
        cursors_(s),
        gathered_(s.units.size()),
        computed_(s.units.size()) {}

  std::vector<Span> run() {
    for (int i = 0; i < n_; ++i) forward(i);
    next_gather_ = n_ - 1;
    for (int i = n_ - 1; i >= 0; --i) backward(i);
    std::int64_t mine = 0;
    for (const auto& unit : s_.units) mine += unit.parameters / s_.ranks;
    cursors_.issue(SpanKind::kOptimizer, Lane::kCompute, fsdp::kNoUnit, Pass::kOptimizer, mine / 40, 0, reduced_);
    return cursors_.finish();
  }

 private:
  const SyntheticUnit& unit(int i) const { return s_.units[static_cast<std::size_t>(i)]; }
  Nanos wire(fsdp::Bytes bytes) const {
    return s_.latency + static_cast<Nanos>(s_.ns_per_byte * static_cast<double>(bytes) * (s_.ranks - 1) / s_.ranks);
  }
  Nanos compute(int i, double factor) const {
    return 1000 +
           static_cast<Nanos>(s_.ns_per_parameter * factor * s_.jitter * static_cast<double>(unit(i).parameters));
  }
  std::uint32_t gather(int i, Pass pass, std::vector<std::uint32_t> waits) {
    const fsdp::Bytes bytes = 4 * unit(i).parameters;
    return cursors_.issue(SpanKind::kAllGather, Lane::kAllGather, i, pass, wire(bytes), bytes, std::move(waits));
  }
  // The buffer of unit k becomes free when the compute of unit k has ended.
  std::vector<std::uint32_t> after_compute(int k) const {
    if (k < 0 || k >= n_ || computed_[static_cast<std::size_t>(k)] == 0) return {};
    return {computed_[static_cast<std::size_t>(k)]};
  }
  std::uint32_t work(int i, Pass pass, double factor) {
    const auto at = static_cast<std::size_t>(i);
    std::vector<std::uint32_t> waits;
    if (gathered_[at] != 0) waits.push_back(gathered_[at]);
    const auto copy = cursors_.issue(SpanKind::kCopy, Lane::kCompute, i, pass, unit(i).parameters / 150 + 2000,
                                     4 * unit(i).parameters, waits);
    return computed_[at] = cursors_.issue(SpanKind::kCompute, Lane::kCompute, i, pass, compute(i, factor), 0, {copy});
  }

  void forward(int i) {
    for (; next_gather_ < n_ && next_gather_ <= i + s_.prefetch_forward; ++next_gather_) {
      gathered_[static_cast<std::size_t>(next_gather_)] =
          gather(next_gather_, Pass::kForward, after_compute(next_gather_ - 1 - s_.prefetch_forward));
    }
    work(i, Pass::kForward, 1);
  }

  void backward(int i) {
    const auto at = static_cast<std::size_t>(i);
    const bool again = s_.reshard && i != 0;
    if (again && next_gather_ >= i) {
      gathered_[at] = gather(i, Pass::kBackward, i == n_ - 1 ? after_compute(n_ - 1) : after_compute(i + 1));
      next_gather_ = i - 1;
    }
    const std::uint32_t done = work(i, Pass::kBackward, 2);
    if (s_.prefetch_backward && s_.reshard && i - 1 > 0 && next_gather_ == i - 1) {
      gathered_[at - 1] = gather(i - 1, Pass::kBackward, after_compute(i + 1));
      next_gather_ = i - 2;
    }
    const fsdp::Bytes bytes = 4 * unit(i).parameters;
    reduced_.push_back(
        cursors_.issue(SpanKind::kReduceScatter, Lane::kReduceScatter, i, Pass::kBackward, wire(bytes), bytes, {done}));
  }

  const SyntheticStep& s_;
  int n_;
  Cursors cursors_;
  std::vector<std::uint32_t> gathered_, computed_, reduced_;
  int next_gather_ = 0;
};

}  // namespace

std::vector<fsdp::Span> synthetic_spans(const SyntheticStep& s) { return Step(s).run(); }

}  // namespace testing_support
