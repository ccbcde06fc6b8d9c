// Records: what a case leaves behind, as plain values. The trial fills them, the store keeps them, the reports read
// them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/core/memory_meter.h"
#include "fsdp/core/span.h"
#include "harness/analysis/partition.h"
#include "harness/store/file_text.h"

namespace harness {

enum class Status : std::uint8_t { kOk, kNearOom, kOom, kTimeout, kCrashed, kCommError, kConfigError, kSkipped };
std::string_view name_of(
    Status s);  // "ok", "near_oom", "oom", "timeout", "crashed", "comm_error", "config_error", "skipped"
std::optional<Status> status_from(const std::string& name);
inline bool measured(Status s) { return s == Status::kOk || s == Status::kNearOom; }

struct UnitRecord {
  std::string name;
  std::int64_t parameters = 0;
  fsdp::Bytes unsharded_bytes = 0;  // padded, compute dtype
  fsdp::Bytes shard_bytes = 0;      // per rank, master dtype
  fsdp::Bytes reduce_bytes = 0;     // reduce input
  std::string strategy;
};

struct RankRecord {
  int rank = 0;
  fsdp::MemoryPeak peak;
  fsdp::BytesByCategory category_peaks{};
  std::string peak_cause;
  std::vector<fsdp::Nanos> step_ns;  // traced repetition, by step
};

struct StepRow {  // one traced step of one rank
  int rank = 0, step = 0;
  fsdp::Nanos length = 0;
  Partition classes{};
};

// What became of gathers ahead of their unit's turn, in one step of a rank (fsdp::SchedulerStats). Not in the database.
struct PrefetchCounts {
  std::int64_t hits = 0, misses = 0, unused = 0, order_changes = 0;
};

// One case, whatever became of it. Absent numbers are std::nullopt: an empty CSV field, JSON null.
struct CaseRecord {
  std::string id;
  std::vector<std::pair<std::string, std::string>> settings;  // every setting, table order
  std::vector<std::pair<std::string, std::string>> axes;      // the sweep's axes and this case's values
  Files files;  // that the settings name, as they were; empty too in records of versions that did not keep them
  Status status = Status::kSkipped;
  std::string reason;  // one sentence; empty for ok

  std::optional<std::int64_t> units;
  std::optional<fsdp::Bytes> largest_unit_bytes;
  std::vector<fsdp::Nanos> samples;  // untraced repetitions / steps, slowest rank
  std::optional<fsdp::Nanos> step_ns, step_mad_ns, step_ci_low_ns, step_ci_high_ns;
  double ci_coverage = 0;
  std::string stopped_by;  // "narrow", "max", "time"
  std::int64_t repetitions = 0;
  std::optional<double> tokens_per_s;
  std::optional<fsdp::Bytes> peak_bytes;
  std::string peak_cause;
  std::optional<fsdp::Nanos> traced_step_ns;
  std::optional<Partition> partition;  // of the median traced step of the slowest rank
  int partition_rank = 0, partition_step = 0;
  std::optional<double> overlap_pct;
  std::optional<std::int64_t> collectives;        // per step and rank
  std::optional<fsdp::Bytes> communicated_bytes;  // sent per step and rank, ring formulas, padded sizes
  std::optional<PrefetchCounts> prefetch;
  std::optional<double> observer_ratio;
  bool emulated = false, predicted = false;

  std::vector<double> losses, grad_norms;
  std::vector<UnitRecord> unit_table;
  std::vector<UnitMetrics> unit_metrics;           // of the partition's step
  std::vector<PartitionDetail> partition_details;  // of the partition's step
  std::vector<RankRecord> ranks;
  std::vector<StepRow> steps;     // every rank and traced step
  std::vector<fsdp::Span> spans;  // traced step of `partition_step`, all ranks (for the timeline)
  std::map<std::string, std::string> environment;
  std::vector<std::string> warnings;
  std::int64_t started_at = 0, finished_at = 0;  // seconds since 1970
};

// In a record's environment: what ended the case was trouble that passes (a signal from outside, no memory or no
// descriptors left on the host, a machine that lacks something), and which. The next run of the sweep runs it again.
inline constexpr const char* kPassingTrouble = "passing_trouble";

struct SweepRecord {
  std::string name;
  std::string spec_text;  // as given
  std::string spec_hash;  // of the canonical form
  std::string command;    // how to run it again
  std::vector<std::pair<std::string, std::vector<std::string>>>
      axes;     // in the spec's order, values in the spec's order
  Files files;  // that the spec names
  std::map<std::string, std::string> environment;
  std::int64_t created_at = 0;
  int schema_version = 1;
};

}  // namespace harness
