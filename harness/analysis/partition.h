// The partition of a step: every nanosecond belongs to exactly one class; the classes sum to the step exactly.
// Definitions: tests/data/metrics in words are in harness/README.md ("The partition"). Plain C++, integers only.
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

struct StepPartition {
  std::int32_t rank = 0, step = 0;
  fsdp::Nanos begin = 0, end = 0;
  Partition classes{};
  std::vector<PartitionDetail> details;  // each class's rows sum to the class
  std::vector<PartitionPiece> pieces;
  fsdp::Nanos communication = 0;         // |N|: union of collectives in flight within the step
  fsdp::Nanos communication_hidden = 0;  // |C ∩ N|, C with the optimizer
};

// Own runs (rules 1-4e of metrics 3.3). `spans` are one rank's; windows are its kStep spans. Throws fsdp::Error if there
// is no step span.
std::vector<StepPartition> partition_steps(const std::vector<fsdp::Span>& spans);

// The step of median length (lower middle on an even count), as an index into `steps`.
std::size_t median_step(const std::vector<StepPartition>& steps);

// Per unit and pass: what its collectives and its compute did (metrics 3.6).
struct UnitMetrics {
  fsdp::UnitId unit;
  fsdp::Pass pass;
  std::int64_t all_gathers = 0, reduce_scatters = 0, other_collectives = 0;
  fsdp::Bytes all_gather_bytes = 0, reduce_scatter_bytes = 0;
  fsdp::Nanos all_gather_ns = 0, reduce_scatter_ns = 0;  // in flight
  fsdp::Nanos exposed_ns = 0, hidden_ns = 0, compute_ns = 0, copy_ns = 0;
};
std::vector<UnitMetrics> unit_metrics(const std::vector<fsdp::Span>& spans, const StepPartition& step);

}  // namespace harness
