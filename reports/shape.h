// The shape of a sweep: its axes with their values in display order, where each case stands on them, which axis is the
// granularity of wrapping, and the workloads, inside which cases may be compared with each other.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "harness/store/records.h"

namespace reports {

// One or more of these make a report.
struct ReportInput {
  harness::SweepRecord sweep;
  std::vector<harness::CaseRecord> cases;
  std::string folder = {};  // of its logs and traces, as seen from the page; empty: beside it
};

struct Axis {
  std::string name;
  std::vector<std::string> values;  // display order; `wrap`: coarse to fine where the units of every value are known
  std::vector<std::int64_t> units;  // `wrap` only: units of each value, -1 where unknown
  bool workload = false;            // what is run, not how: cases that differ here are never ranked against each other
};

struct Workload {
  std::string label;               // "model gpt2, world 4"; empty when the sweep has one workload
  std::vector<std::size_t> cases;  // indices, in the order of the axes
};

// Axes are the sweep's axes and any other setting that differs between cases (a boundary search does that).
struct SweepShape {
  std::vector<Axis> axes;
  std::vector<std::vector<int>> at;  // [case][axis]: index into the axis's values
  int granularity = -1;              // index into axes; -1 when all cases have the same wrapping
  std::vector<Workload> workloads;   // one at least, unless there is no case
};
SweepShape shape_of(const ReportInput& input);

// Cases of a workload that differ in one axis only, in the order of the axis's values.
using Line = std::vector<std::size_t>;
std::vector<Line> lines_along(const SweepShape& shape, const Workload& workload, std::size_t axis);

// An axis's value as people read it: the model of a config.json is its name, unless another value has the same.
std::string value_label(const Axis& axis, std::size_t value);
std::string words_of(std::string name);  // "backward_prefetch" -> "backward prefetch"
// "blocks:2, backward prefetch pre": the values of the axes that are settings of how, in the sweep's order.
std::string point_label(const SweepShape& shape, std::size_t case_index);

}  // namespace reports
