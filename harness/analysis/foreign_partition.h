// The partition of traces made elsewhere: no waits are known, only what ran and when it was launched. One pass over one
// device's operations in order of begin; memory is bounded by the widest instant.
//
// At each instant the first that applies: an optimizer kernel runs -> optimizer; compute and communication ->
// overlapped; compute -> compute; communication -> exposed, charged to the collective that began first; copies -> copy;
// else a gap, explained by the operation k that ends it: the part in which k's launching thread was inside an
// allocation call is memory wait; before k's launch call began, host ("not issued"); from then on host ("launch"); if k
// had been launched before the gap began, idle ("dependency"); without a launch record idle ("unknown").
//
// A step's window goes from the first operation launched in it to the first of the next, the last one to the last end.
// A step that launched nothing has the part of its own range in which the device ran nothing, if any.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "harness/analysis/annotations.h"
#include "harness/analysis/device_counts.h"
#include "harness/analysis/device_trace.h"
#include "harness/analysis/foreign_savings.h"
#include "harness/analysis/host_calls.h"
#include "harness/analysis/interval_set.h"
#include "harness/analysis/partition.h"
#include "harness/analysis/row_index.h"
#include "harness/analysis/running_times.h"
#include "harness/analysis/slowdown.h"

namespace harness {

struct ForeignStep {
  std::string label;  // "ProfilerStep#4"; empty: the window is not a step
  StepPartition partition;
  RunningTimes running;         // of the whole and of what was before the first step
  std::vector<Saving> savings;  // upper bounds
  fsdp::Nanos host_not_issued = 0, host_launch = 0, idle_dependency = 0, idle_unknown = 0;
  // Of the gaps: what lies behind launch calls whose kernels are not in the trace. They may have run then.
  fsdp::Nanos unrecorded = 0;
  std::int64_t operations = 0;
  bool cut = false;       // its annotation never ended
  bool left_out = false;  // it launched nothing and is shorter than 1 % of the others together

  fsdp::Nanos length() const { return partition.end - partition.begin; }
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
  std::vector<HostSync> host_syncs;  // the longest first

  // The steps that count: without cut ones (unless asked for) and without those left out.
  static bool included(const ForeignStep& s, bool with_cut) { return (!s.cut || with_cut) && !s.left_out; }
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
  // Before the first operation: whose steps count, and what the host's calls tell. `calls` must outlive the sweep.
  void of_process(std::int64_t process, const HostCalls& calls);
  // In order of begin, ties by (stream, correlation, order). Operations of length 0 count as operations, nothing more.
  void add(const DeviceOp& op);
  ForeignPartition finish();

 private:
  static constexpr int kWhole = -2, kBefore = -1;  // beside the numbers of steps
  struct Gap {
    fsdp::Nanos begin = 0, end = 0;
    std::vector<std::pair<fsdp::Nanos, int>> windows;  // from when on which
    fsdp::Nanos launch_begin = kNoTime;
    fsdp::Nanos launched_before = kNoTime;  // the last launch call of the thread before that one
    std::uint32_t thread = kNoThread;
  };
  void advance(fsdp::Nanos t);
  void segment(fsdp::Nanos begin, fsdp::Nanos end);
  void resolve_gap();
  template <class F>
  void in_windows(const Gap& gap, fsdp::Nanos begin, fsdp::Nanos end, F f);
  void part_of_gap(const Gap& gap, fsdp::Nanos begin, fsdp::Nanos end, PartitionClass cls,
                   fsdp::Nanos ForeignStep::*detail);
  void unrecorded_in(const Gap& gap);
  void ended_by(const DeviceOp& op);
  void enter_step(const DeviceOp& op);
  void steps_without_work(int until, fsdp::Nanos t);
  void steps_at_the_end();
  void leave_out_short_ones();
  void open_window(fsdp::Nanos t, int step);
  void begin_communication(const DeviceOp& op);
  void record(int window, PartitionClass cls, fsdp::Nanos ns, const DeviceOp* owner);
  void piece(PartitionClass cls, fsdp::Nanos begin, fsdp::Nanos end, const DeviceOp* owner);
  void count(const DeviceOp& op);
  void stretch(PartitionClass cls, fsdp::Nanos begin, fsdp::Nanos end, const DeviceOp* owner);
  void close_stretch();
  ForeignStep& window(int i) {
    return i == kWhole ? out_.whole : (i < 0 ? out_.before : out_.steps[static_cast<std::size_t>(i)]);
  }
  ForeignStep& window() { return window(current_); }
  UnitMetrics& unit_row(const DeviceOp& op) { return unit_row(op.unit, op.pass); }
  UnitMetrics& unit_row(fsdp::UnitId unit, fsdp::Pass pass);
  const DeviceOp& first_in_flight();
  void save(int window, const Saving& s);
  void end_one();

  // Time so far with at least one or two kernels, collectives of NCCL, any collective, and with model work.
  struct Passed {
    fsdp::Nanos kernel = 0, kernels = 0, nccl = 0, nccls = 0, collective = 0, model = 0;
  };
  void pass(unsigned set, fsdp::Nanos ns);
  struct Ending {
    fsdp::Nanos end, begin;
    Passed since;  // until it began
    std::uint32_t name, shape;
    fsdp::UnitId unit;
    fsdp::Pass pass;
    fsdp::SpanKind collective;
    unsigned bit;
    bool operator>(const Ending& o) const { return end > o.end; }
  };
  const std::vector<Annotation>& steps_;
  const std::vector<std::string>& labels_;
  const AllocationCalls& allocations_;
  PieceSink sink_;
  std::int64_t process_ = 0;
  const HostCalls* calls_ = nullptr;
  ForeignPartition out_;
  int current_ = kBefore;    // index into out_.steps
  int step_ = -1;            // of steps_
  std::int64_t looks_ = 64;  // at steps without work: as many as there is work, so that time stays in proportion
  bool started_ = false;
  fsdp::Nanos now_ = 0;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings_;
  std::array<int, 8> running_{};
  std::deque<DeviceOp> collectives_;         // in order of begin; what has ended goes when it is first
  std::size_t in_flight_ = 0;                // of collectives_
  std::unordered_set<std::int32_t> ranges_;  // whose copies were counted as a collective
  bool has_gap_ = false;
  Gap gap_;
  std::unordered_map<std::uint32_t, fsdp::Nanos> launched_;  // by thread: the last launch call seen
  std::map<std::pair<fsdp::UnitId, fsdp::Pass>, UnitMetrics> units_;
  std::map<std::int32_t, StreamUse> streams_;
  CriticalStretch open_stretch_;
  fsdp::Nanos charged_most_ = 0;
  Passed passed_;
  RowIndex details_, saved_;
  BlockedHost blocked_{nullptr};
  SavingBound savings_;
  KernelTimes kernel_times_;
};

}  // namespace harness
