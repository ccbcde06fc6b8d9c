// Metrics of units for many steps of the same spans, which are looked up once for all of them.
#pragma once
#include <vector>

#include "harness/analysis/interval_set.h"
#include "harness/analysis/partition.h"
#include "harness/analysis/span_index.h"

namespace harness {

// The union of the spans' compute and optimizer work.
IntervalSet computing_of(const std::vector<fsdp::Span>& spans);

// As unit_metrics() of partition.h.
std::vector<UnitMetrics> unit_metrics(const SpanIndex& index, const IntervalSet& computing, const StepPartition& step);

}  // namespace harness
