#include <algorithm>
#include <map>

#include "harness/analysis/step_metrics.h"

namespace harness {

using fsdp::Span;
using fsdp::SpanKind;

namespace {

void count_collective(const Span& s, fsdp::Nanos in_flight, UnitMetrics& m) {
  if (s.kind == SpanKind::kAllGather) {
    ++m.all_gathers;
    m.all_gather_bytes += s.bytes;
    m.all_gather_ns += in_flight;
  } else if (s.kind == SpanKind::kReduceScatter) {
    ++m.reduce_scatters;
    m.reduce_scatter_bytes += s.bytes;
    m.reduce_scatter_ns += in_flight;
  } else {
    ++m.other_collectives;
  }
}

}  // namespace

IntervalSet computing_of(const std::vector<Span>& spans) {
  std::vector<Interval> computing;
  for (const Span& s : spans) {
    if (s.kind == SpanKind::kCompute || s.kind == SpanKind::kOptimizer) computing.push_back({s.begin, s.end});
  }
  return IntervalSet(std::move(computing));
}

std::vector<UnitMetrics> unit_metrics(const std::vector<Span>& spans, const StepPartition& step) {
  return unit_metrics(SpanIndex(spans), computing_of(spans), step);
}

std::vector<UnitMetrics> unit_metrics(const SpanIndex& index, const IntervalSet& compute, const StepPartition& step) {
  std::map<std::pair<fsdp::UnitId, fsdp::Pass>, UnitMetrics> rows;
  auto row = [&](fsdp::UnitId unit, fsdp::Pass pass) -> UnitMetrics& {
    UnitMetrics& m = rows[{unit, pass}];
    m.unit = unit;
    m.pass = pass;
    return m;
  };
  index.for_each_within(step.begin, step.end, [&](const Span& s) {
    const fsdp::Nanos begin = std::max(s.begin, step.begin), end = std::min(s.end, step.end);
    const bool counts = s.begin >= step.begin && s.begin < step.end;  // a collective counts where it begins
    if (s.kind == SpanKind::kStep || s.unit == fsdp::kNoUnit || (begin >= end && !counts)) return;
    const fsdp::Nanos ns = std::max(fsdp::Nanos{0}, end - begin);
    if (is_collective(s.kind)) {
      UnitMetrics& m = row(s.unit, s.pass);
      if (counts) count_collective(s, s.end - s.begin, m);
      m.hidden_ns += ns > 0 ? compute.length_within(begin, end) : 0;
    } else if (s.kind == SpanKind::kCompute) {
      row(s.unit, s.pass).compute_ns += ns;
    } else if (s.kind == SpanKind::kCopy) {
      row(s.unit, s.pass).copy_ns += ns;
    }
  });
  for (const CollectiveDetail& c : step.collectives) {
    if (c.unit == fsdp::kNoUnit) continue;
    UnitMetrics& m = row(c.unit, c.pass);
    m.exposed_ns += c.exposed;
    m.queued_behind_ns += c.queued_behind;
    m.slot_delay_ns += c.slot_delay;
  }
  std::vector<UnitMetrics> out;
  for (const auto& [key, m] : rows) out.push_back(m);
  return out;
}

}  // namespace harness
