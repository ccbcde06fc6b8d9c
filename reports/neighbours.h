// Lines through a sweep: cases that differ in one axis only, in the axis's order; what happens between neighbours on
// them.
#pragma once
#include <cstddef>
#include <vector>

#include "reports/findings.h"

namespace reports {

using Line = std::vector<std::size_t>;  // cases, in the order of the axis's values

std::vector<Line> lines_along(const SweepShape& shape, const Workload& workload, std::size_t axis);

// Every two neighbours that were measured, along every axis that is no workload. Missing points are passed over.
std::vector<NeighbourStep> neighbour_steps(const ReportInput& input, const SweepShape& shape, const Workload& workload,
                                           bool per_token);

// Along wrapping (fine to coarse), batch, seq: the lines that hold an out-of-memory case.
std::vector<Boundary> boundaries(const ReportInput& input, const SweepShape& shape, const Workload& workload);

// Which classes of the partition grew from `from` to `to`, per unit of work, largest first; with the sum of all growth.
// Compute counts with overlapped compute: time that only moved between the two did not grow.
struct Growth {
  struct Part {
    harness::PartitionClass cls;
    double ns;  // > 0
  };
  std::vector<Part> parts;
  double total = 0;
};
Growth growth(const harness::CaseRecord& from, const harness::CaseRecord& to, bool per_token);

}  // namespace reports
