#include "harness/trace/own_rows.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "fsdp/core/errors.h"
#include "harness/analysis/span_index.h"
#include "harness/analysis/step_metrics.h"
#include "harness/trace/analyze_parts.h"

namespace harness {
namespace {

using fsdp::Nanos;
using fsdp::Span;
using fsdp::SpanKind;

// One rank's spans as a device would show them: compute, copies and collectives, each lane a stream.
class AsDevice {
 public:
  explicit AsDevice(const std::vector<Span>& spans) {
    std::vector<const Span*> order;
    for (const Span& s : spans) order.push_back(&s);
    std::sort(order.begin(), order.end(),
              [](const Span* a, const Span* b) { return std::tie(a->begin, a->id) < std::tie(b->begin, b->id); });
    for (const Span* span : order) {
      const Span& s = *span;
      if (s.kind == SpanKind::kStep) add_step(s);
      if (s.kind == SpanKind::kWait || s.kind == SpanKind::kMemoryWait || s.kind == SpanKind::kStep) continue;
      ops_.push_back(op_of(s));
    }
    std::sort(steps_.begin(), steps_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    for (DeviceOp& op : ops_) op.step = step_at(op.launch_begin);
    std::sort(ops_.begin(), ops_.end(), [](const DeviceOp& a, const DeviceOp& b) {
      return std::tie(a.begin, a.stream, a.correlation) < std::tie(b.begin, b.stream, b.correlation);
    });
  }

  // Unions of what ran, and the kernels' slowdown; its partition guesses what ours knows.
  ForeignPartition running() const {
    const std::vector<std::string> labels(steps_.size());
    const AllocationCalls none;
    ForeignSweep sweep(steps_, labels, none);
    for (const DeviceOp& op : ops_) sweep.add(op);
    return sweep.finish();
  }
  HtaResult hta(const AnalyzeOptions& options) const {
    HtaSweep sweep({options.hta_round, options.hta_include_last_step}, steps_, classes_, true);
    for (const DeviceOp& op : ops_) sweep.add(op);
    return sweep.finish();
  }

 private:
  void add_step(const Span& s) {
    Annotation a;
    a.kind = AnnotationKind::kStep;
    a.begin = s.begin, a.end = s.end;
    steps_.push_back(a);
  }

  DeviceOp op_of(const Span& s) {
    DeviceOp op;
    op.begin = s.begin, op.end = s.end, op.launch_begin = op.launch_end = std::min(s.issued, s.begin);
    op.stream = static_cast<std::int32_t>(s.lane);
    op.correlation = op.order = s.id;
    op.unit = s.unit, op.pass = s.pass, op.bytes = s.bytes;
    op.cls = is_collective(s.kind)            ? OpClass::kCommunication
             : s.kind == SpanKind::kOptimizer ? OpClass::kOptimizer
             : s.kind == SpanKind::kCopy      ? OpClass::kCopy
                                              : OpClass::kCompute;
    if (is_collective(s.kind)) op.collective = s.kind;
    // The n-th compute of one unit and pass is the same work in every step.
    const int nth = seen_[{s.step, s.kind, s.unit, s.pass}]++;
    const auto [it, fresh] =
        names_.try_emplace({nth, s.kind, s.unit, s.pass}, static_cast<std::uint32_t>(classes_.size()));
    if (fresh) classes_.push_back(is_collective(s.kind) ? HtaClass::kCommunication : HtaClass::kCompute);
    op.name = it->second;
    return op;
  }

  std::int32_t step_at(Nanos t) const {
    const auto after = std::partition_point(steps_.begin(), steps_.end(), [&](const auto& s) { return s.begin <= t; });
    return static_cast<std::int32_t>(after - steps_.begin()) - 1;
  }

  std::vector<DeviceOp> ops_;
  std::vector<Annotation> steps_;
  using Work = std::tuple<std::int32_t, SpanKind, fsdp::UnitId, fsdp::Pass>;
  std::map<Work, int> seen_;             // by step: how many so far
  std::map<Work, std::uint32_t> names_;  // by place in the step
  std::vector<HtaClass> classes_;
};

// A lane runs one span at a time, the host a few inside one another: what shows many at once is no trace of ours, and
// time would grow with their square.
constexpr std::size_t kMostAtOnce = 256, kMostWaits = 4096;
constexpr std::size_t kMostRanks = 16'384;
constexpr std::size_t kMostReplays = 20'000'000;  // spans played again, over all steps and collectives

void check_plausible(const std::vector<Span>& spans) {
  std::vector<std::pair<Nanos, int>> changes;
  for (const Span& s : spans) {
    if (s.waits.size() > kMostWaits) {
      throw fsdp::ConfigError("span " + std::to_string(s.id) + " of rank " + std::to_string(s.rank) + " waits for " +
                              std::to_string(s.waits.size()) + " others; write the trace again");
    }
    if (s.kind == SpanKind::kStep || s.end <= s.begin) continue;
    changes.emplace_back(s.begin, 1);
    changes.emplace_back(s.end, -1);
  }
  std::sort(changes.begin(), changes.end());  // ends come before begins
  std::int64_t running = 0;
  for (const auto& [at, change] : changes) {
    running += change;
    if (running > static_cast<std::int64_t>(kMostAtOnce)) {
      throw fsdp::ConfigError("more than " + std::to_string(kMostAtOnce) + " spans of rank " +
                              std::to_string(spans.front().rank) + " run at once; write the trace again");
    }
  }
}

RowAnalysis row_of(const std::vector<Span>& spans, const AnalyzeOptions& options) {
  check_plausible(spans);
  RowAnalysis row;
  const AsDevice device(spans);
  const ForeignPartition ran = device.running();
  ForeignPartition& p = row.partition;
  p.counts = ran.counts;
  p.slowdown = ran.slowdown;
  p.row_overlap = ran.row_overlap;
  p.whole.operations = ran.whole.operations;
  p.has_steps = true;
  const SpanIndex index(spans);
  const IntervalSet computing = computing_of(spans);
  std::vector<Nanos> begins;  // of what devices ran
  for (const Span& x : spans) {
    if (x.kind != SpanKind::kStep && x.lane != fsdp::Lane::kHost) begins.push_back(x.begin);
  }
  std::sort(begins.begin(), begins.end());
  std::map<std::pair<fsdp::UnitId, fsdp::Pass>, std::vector<UnitMetrics>> units;
  const std::size_t replays = std::max<std::size_t>(64, kMostReplays / spans.size());
  for (StepPartition& s : partition_steps(spans)) {
    ForeignStep step;
    step.label = "step " + std::to_string(s.step);
    step.savings = savings_of(index, s, replays);
    step.operations =
        std::lower_bound(begins.begin(), begins.end(), s.end) - std::lower_bound(begins.begin(), begins.end(), s.begin);
    for (const UnitMetrics& m : unit_metrics(index, computing, s)) add_units(units[{m.unit, m.pass}], m);
    step.partition = std::move(s);
    p.steps.push_back(std::move(step));
  }
  for (const auto& [key, m] : units) p.units.insert(p.units.end(), m.begin(), m.end());
  p.stretch = longest_stretch(p.steps);
  row.total = p.sum_of_steps(true);
  p.whole.partition = row.total.partition;
  p.whole.savings = row.total.savings;
  if (options.convention == Convention::kTraceLens) row.tracelens = tracelens_times(ran);
  if (options.convention == Convention::kNsys) row.nsys = nsys_times(ran);
  if (options.convention == Convention::kHta) row.hta = device.hta(options);
  return row;
}

}  // namespace

std::vector<RowAnalysis> own_rows(const OwnTrace& trace, const AnalyzeOptions& options, std::size_t file) {
  std::map<int, std::vector<Span>> ranks;
  for (const Span& s : trace.spans) ranks[s.rank].push_back(s);
  if (ranks.size() > kMostRanks) {
    throw fsdp::ConfigError("has " + std::to_string(ranks.size()) + " ranks, more than the " +
                            std::to_string(kMostRanks) + " that are read from one file");
  }
  std::vector<RowAnalysis> rows;
  for (const auto& [rank, spans] : ranks) {
    RowAnalysis row = row_of(spans, options);
    row.file = file;
    row.rank = rank;
    row.savings_exact = true;
    row.steps_counted = row.partition.steps.size();
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace harness
