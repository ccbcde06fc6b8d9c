// The partition of a step: every nanosecond belongs to exactly one class; the classes sum to the step exactly.
// Definitions in words: harness/analysis/README.md. Plain C++, integers only.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fsdp/core/span.h"

namespace harness {

enum class PartitionClass : std::uint8_t {
  kCompute,  // model compute, no collective in flight
  kOverlapped,
  kExposedAllGatherForward,
  kExposedAllGatherBackward,
  kExposedReduceScatter,
  kExposedOther,
  kCopy,
  kHost,
  kMemoryWait,
  kOptimizer,
  kIdle,
};
inline constexpr int kPartitionClassCount = 11;
// Column names without the unit: "compute", "overlapped", "exposed_all_gather_forward", ...
std::string_view name_of(PartitionClass c);

using Partition = std::array<fsdp::Nanos, kPartitionClassCount>;
fsdp::Nanos sum(const Partition& p);
fsdp::Nanos exposed(const Partition& p);  // the four exposed classes

// One row of the detail: a class split by unit and pass (and, for exposed classes, the collective's kind).
struct PartitionDetail {
  PartitionClass cls;
  fsdp::UnitId unit;
  fsdp::Pass pass;
  fsdp::SpanKind collective;  // meaningful for exposed classes
  fsdp::Nanos ns;
};

// A piece of the partition, for drawing: [begin, end) of one class. Pieces tile the step.
struct PartitionPiece {
  PartitionClass cls;
  fsdp::UnitId unit;
  fsdp::Pass pass;
  fsdp::Nanos begin, end;
};

// Beside the partition, not part of its sum: what held a collective up.
struct CollectiveDetail {
  std::uint32_t span = 0;  // its id
  fsdp::SpanKind kind = fsdp::SpanKind::kAllGather;
  fsdp::UnitId unit = fsdp::kNoUnit;
  fsdp::Pass pass = fsdp::Pass::kNone;
  fsdp::Nanos exposed = 0;        // of the exposed classes, what is charged to it
  fsdp::Nanos queued_behind = 0;  // of `exposed`: it waited for another collective of its communicator
  fsdp::Nanos slot_delay = 0;     // actual begin - max(issued, communicator free, other awaited spans)
};

struct StepPartition {
  std::int32_t rank = 0, step = 0;
  fsdp::Nanos begin = 0, end = 0;
  Partition classes{};
  std::vector<PartitionDetail> details;  // each class's rows sum to the class
  std::vector<PartitionPiece> pieces;
  std::vector<CollectiveDetail> collectives;  // those in flight in the step, by begin
  fsdp::Nanos communication = 0;              // |N|: union of collectives in flight within the step
  fsdp::Nanos communication_hidden = 0;       // |C ∩ N|, C with the optimizer
};

// Own runs. `spans` are one rank's, in any order; windows are its kStep spans. At each instant the first rule that
// applies:
//   1  an optimizer span runs                                                       -> optimizer
//   2  a compute span runs (any lane): a collective in flight -> overlapped, else   -> compute
//   3  a copy span runs on the compute lane                                         -> copy
//   4  the compute lane is empty; k is its next span, h(k) when k was issued:
//   4a t < h(k): the host is in a kMemoryWait -> memory wait; in a kWait for a collective -> exposed, charged to it;
//      in a kWait that names nothing (a barrier) -> idle; else host
//   4b k waits for a collective c that has not ended (several: the one that ends last): c in flight, or queued behind
//      another of its communicator -> exposed(c); c not issued -> host; c's lane in a kMemoryWait -> memory wait;
//      a copy that c waits for runs -> copy; c waits for a collective -> as if k waited for that one
//   4c k waits for a copy -> copy       4d no unresolved wait -> host (launch latency)       4e else idle
// A kMemoryWait span on the compute lane says that the compute lane waits for a slot: memory wait, before 4b.
// After the last compute-lane span of a window, k is the window's end; it waits for every collective of the step that
// ends inside the window.
// Throws fsdp::Error if there is no step span, if steps overlap, or if ids repeat.
std::vector<StepPartition> partition_steps(const std::vector<fsdp::Span>& spans);

// The step of median length (lower middle on an even count; the earlier one of equals), as an index into `steps`.
std::size_t median_step(const std::vector<StepPartition>& steps);

// Per unit and pass: what its collectives and its compute did.
struct UnitMetrics {
  fsdp::UnitId unit;
  fsdp::Pass pass;
  std::int64_t all_gathers = 0, reduce_scatters = 0, other_collectives = 0;
  fsdp::Bytes all_gather_bytes = 0, reduce_scatter_bytes = 0;
  fsdp::Nanos all_gather_ns = 0, reduce_scatter_ns = 0;  // in flight
  fsdp::Nanos exposed_ns = 0, hidden_ns = 0, compute_ns = 0, copy_ns = 0;
  fsdp::Nanos queued_behind_ns = 0, slot_delay_ns = 0;  // of its collectives
};
std::vector<UnitMetrics> unit_metrics(const std::vector<fsdp::Span>& spans, const StepPartition& step);

}  // namespace harness
