// What ForeignTrace sorts, and how. Private to it.
#pragma once
#include <tuple>

#include "harness/trace/foreign_trace.h"
#include "harness/trace/run_sorter.h"

namespace harness {

struct LaunchCall {
  std::int64_t process;
  std::uint64_t correlation;
  fsdp::Nanos begin, end;
  std::uint32_t thread;
  bool kernel, graph;  // it launches kernels; those of a graph
};

struct ByCorrelation {
  bool operator()(const DeviceOp& a, const DeviceOp& b) const {
    return std::tie(a.correlation, a.row, a.order) < std::tie(b.correlation, b.row, b.order);
  }
};
struct ByKey {
  bool operator()(const LaunchCall& a, const LaunchCall& b) const {
    return std::tie(a.correlation, a.process, a.begin) < std::tie(b.correlation, b.process, b.begin);
  }
};
struct ByBegin {
  bool operator()(const DeviceOp& a, const DeviceOp& b) const {
    return std::tie(a.row, a.begin, a.stream, a.correlation, a.order) <
           std::tie(b.row, b.begin, b.stream, b.correlation, b.order);
  }
};

struct ForeignTrace::Sorters {
  explicit Sorters(std::size_t budget) : unjoined(budget / 3), launches(budget / 3), ops(budget / 3) {}
  RunSorter<DeviceOp, ByCorrelation> unjoined;
  RunSorter<LaunchCall, ByKey> launches;
  RunSorter<DeviceOp, ByBegin> ops;
};

}  // namespace harness
