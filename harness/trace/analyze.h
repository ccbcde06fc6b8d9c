// Traces in, answers out: reads one or more traces (ranks of one run), gives each device its partition, aligns the
// ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/analysis/alignment.h"
#include "harness/analysis/conventions.h"
#include "harness/analysis/foreign_partition.h"
#include "harness/analysis/partition.h"
#include "harness/trace/foreign_trace.h"
#include "harness/trace/unclassified.h"

namespace harness {

struct AnalyzeOptions {
  std::vector<std::string> paths;
  Convention convention = Convention::kExclusive;
  std::vector<int> ranks;         // of the files, in their order; empty: as the files say
  bool include_cut_step = false;  // count a step whose marker never ended
  bool hta_include_last_step = false;
  bool hta_round = true;
  std::string perfetto;  // write an annotated trace there; empty: none
};

// What a user can do something about. The sums of `ns` never exceed the exposed time of the row.
struct AnalysisFinding {
  std::string kind;  // "same_stream", "host_sync", "exposed"
  std::string text;
  fsdp::Nanos ns = 0;
  std::optional<fsdp::Nanos> saved_ns;  // by which the steps that count would be shorter in all if it were hidden
};

// One device of one file, or one rank of one of our own traces.
struct RowAnalysis {
  std::size_t file = 0;
  std::optional<int> rank;
  std::int32_t device = 0;
  std::int64_t process = 0;
  ForeignPartition partition;
  ForeignStep total;                  // over the steps that count, or over everything if there are none
  std::size_t steps_counted = 0;      // in `total`
  std::optional<double> overlap_pct;  // hidden / communication of `total`
  bool savings_exact = false;         // the waits are known; else `saved_ns` are upper bounds
  std::optional<HtaResult> hta;
  std::optional<TraceLensTimes> tracelens;
  std::optional<NsysTimes> nsys;
  std::vector<AnalysisFinding> findings;
  std::vector<Unclassified> unclassified;
  std::shared_ptr<const std::vector<std::string>> unit_names;  // of the file
  bool several_processes = false;                              // the file holds more than one
  std::vector<std::string> call_names;                         // of `partition.host_syncs`, in their order
};

struct FileAnalysis {
  TraceFacts facts;
  std::optional<int> rank;
  std::string rank_from;                  // "file", "name", "flag", "unknown"
  bool suspect = false;                   // more than 1 % of the device records are bad
  std::vector<IssuedCollectives> issued;  // of traces without device rows
  std::shared_ptr<const std::vector<std::string>> unit_names;
  std::vector<Unclassified> unclassified;
  std::size_t operations = 0;
};

enum class TraceOutcome : std::uint8_t { kClean, kPartial, kNoDeviceActivity };
std::string_view name_of(TraceOutcome o);

struct TraceAnalysis {
  Convention convention = Convention::kExclusive;
  TraceOutcome outcome = TraceOutcome::kClean;
  std::vector<FileAnalysis> files;
  std::vector<RowAnalysis> rows;
  std::optional<Alignment> alignment;  // several files
  // Share of the steps that ranks spend waiting in collectives for the last one to come, the mean over ranks; a rank's
  // waits count up to what is exposed of its communication. Absent: one rank, or the clocks are not known.
  std::optional<double> imbalance_pct;
  std::vector<std::string> messages;  // why the outcome is not clean, and what a reader should know
};

// Throws fsdp::ConfigError for input that nothing can be said about: no trace, two files of one rank, a convention that
// the trace cannot answer.
TraceAnalysis analyze_traces(const AnalyzeOptions& options);

// Exit code of `analyze`: 0 clean, 1 partial or no device activity (2, unusable, is the exception above).
int exit_code_of(TraceOutcome o);

inline constexpr std::size_t kMostStepsInJson = 10'000;  // of a row
std::string to_json(const TraceAnalysis& a);             // one document, a newline at the end
std::string to_text(const TraceAnalysis& a);             // for people

}  // namespace harness
