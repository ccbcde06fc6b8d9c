// The partition of traces made elsewhere: no waits are known, only what ran and when it was launched. One pass over one
// device's operations in order of begin; memory is bounded by the widest instant.
//
// At each instant the first that applies: an optimizer kernel runs -> optimizer; compute and communication ->
// overlapped; compute -> compute; communication -> exposed, charged to the collective that began first; copies -> copy;
// else a gap, explained by the operation k that ends it: the part in which k's launching thread was inside an
// allocation call is memory wait; before k's launch call began, host ("not issued"); from then on host ("launch"); if k
// had been launched before the gap began, idle ("dependency"); without a launch record idle ("unknown").
#pragma once
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "harness/analysis/annotations.h"
#include "harness/analysis/device_counts.h"
#include "harness/analysis/device_trace.h"
#include "harness/analysis/foreign_savings.h"
#include "harness/analysis/interval_set.h"
#include "harness/analysis/partition.h"
#include "harness/analysis/running_times.h"
#include "harness/analysis/slowdown.h"

namespace harness {

struct ForeignStep {
  std::string label;  // "ProfilerStep#4"; empty: the window is not a step
  StepPartition partition;
  RunningTimes running;
  std::vector<Saving> savings;  // upper bounds
  fsdp::Nanos host_not_issued = 0, host_launch = 0, idle_dependency = 0, idle_unknown = 0;
  std::int64_t operations = 0;
  bool cut = false;  // its annotation never ended

  void add(const ForeignStep& other);  // sums; labels and times stay
};

// The longest stretch in which no model work runs: where a remedy would gain most.
struct CriticalStretch {
  fsdp::Nanos begin = 0, end = 0;
  Partition classes{};
  std::string step;                                // label of the step it begins in
  PartitionClass largest = PartitionClass::kIdle;  // of its classes
  fsdp::UnitId unit = fsdp::kNoUnit;               // of the collective charged most, if one is
  fsdp::SpanKind collective = fsdp::SpanKind::kOtherCollective;
};

struct ForeignPartition {
  std::vector<ForeignStep> steps;  // windows, in time order; one without a label if the trace has no steps
  ForeignStep before;              // device work that began before the first step's window
  ForeignStep whole;               // everything, from the first begin to the last end
  ForeignCounts counts;
  std::vector<StreamUse> streams;  // by number
  CriticalStretch stretch;
  std::vector<UnitMetrics> units;  // by unit and pass; unit -1: collectives that no annotation names
  std::optional<Slowdown> slowdown;
  RowOverlap row_overlap;
  KindTimes all_gather, reduce_scatter;
  bool concurrent_collectives = false;  // two ran at once
  fsdp::Nanos kernels_begin = 0, kernels_end = 0;
  bool has_steps = false;

  // The steps that count: without cut ones (unless asked for).
  ForeignStep sum_of_steps(bool with_cut) const;
};

// Time spent in allocation calls, by thread.
using AllocationCalls = std::map<std::uint32_t, IntervalSet>;

// A piece of the partition as it is found, in time order. `owner` (exposed classes): the collective.
using PieceSink = std::function<void(PartitionClass, fsdp::Nanos begin, fsdp::Nanos end, const DeviceOp* owner)>;

class ForeignSweep {
 public:
  // `steps`: of AnnotationIndex. References must outlive the sweep.
  ForeignSweep(const std::vector<Annotation>& steps, const std::vector<std::string>& step_labels,
               const AllocationCalls& allocations, PieceSink sink = {});
  ForeignSweep(const ForeignSweep&) = delete;
  ForeignSweep& operator=(const ForeignSweep&) = delete;
  // In order of begin, ties by (stream, correlation, order). Operations of length 0 count as operations, nothing more.
  void add(const DeviceOp& op);
  ForeignPartition finish();

 private:
  struct Gap {
    fsdp::Nanos begin = 0, end = 0;
    int window = -1;
    fsdp::Nanos launch_begin = kNoTime;
    std::uint32_t thread = kNoThread;
  };
  void advance(fsdp::Nanos t);
  void segment(fsdp::Nanos begin, fsdp::Nanos end);
  void resolve_gap();
  void open_window(fsdp::Nanos t, int step);
  void record(ForeignStep& step, PartitionClass cls, fsdp::Nanos ns, const DeviceOp* owner);
  void piece(PartitionClass cls, fsdp::Nanos begin, fsdp::Nanos end, const DeviceOp* owner);
  void count(const DeviceOp& op);
  void stretch(PartitionClass cls, fsdp::Nanos begin, fsdp::Nanos end, const DeviceOp* owner);
  void close_stretch();
  ForeignStep& window() { return current_ < 0 ? out_.before : out_.steps[static_cast<std::size_t>(current_)]; }
  UnitMetrics& unit_row(const DeviceOp& op);
  void end_one();

  // Time so far with at least one or two kernels, collectives, and with model work.
  struct Passed {
    fsdp::Nanos kernel = 0, kernels = 0, collective = 0, collectives = 0, model = 0;
  };
  void pass(unsigned set, fsdp::Nanos ns);
  struct Ending {
    fsdp::Nanos end, begin;
    Passed since;  // until it began
    std::uint32_t name, shape;
    fsdp::SpanKind collective;
    unsigned bit;
    bool operator>(const Ending& o) const { return end > o.end; }
  };
  const std::vector<Annotation>& steps_;
  const std::vector<std::string>& labels_;
  const AllocationCalls& allocations_;
  PieceSink sink_;
  ForeignPartition out_;
  int current_ = -1;  // index into out_.steps
  int step_ = -1;     // of steps_
  bool started_ = false;
  fsdp::Nanos now_ = 0;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings_;
  std::array<int, 6> running_{};
  std::vector<DeviceOp> collectives_;  // in flight
  bool has_gap_ = false;
  Gap gap_;
  std::map<std::pair<fsdp::UnitId, fsdp::Pass>, UnitMetrics> units_;
  std::map<std::int32_t, StreamUse> streams_;
  CriticalStretch open_stretch_;
  fsdp::Nanos charged_most_ = 0;
  Passed passed_;
  SavingBound savings_;
  KernelTimes kernel_times_;
};

}  // namespace harness
