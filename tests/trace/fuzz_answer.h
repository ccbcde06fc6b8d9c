// What every fuzzed trace must give: an answer whose numbers add up, or one sentence. Everything else ends the process.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "fsdp/core/errors.h"
#include "harness/trace/analyze.h"

namespace harness::testing {

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline void check_row(const RowAnalysis& r) {
  const StepPartition& whole = r.partition.whole.partition;
  fsdp::Nanos steps = 0;
  for (const ForeignStep& s : r.partition.steps) {
    const fsdp::Nanos length = s.partition.end - s.partition.begin;
    require(sum(s.partition.classes) == length);
    steps += length;
  }
  // Of a trace of our own (whose savings are exact) the whole is its steps; where some were lost they do not meet.
  require(sum(whole.classes) == (r.savings_exact ? steps : whole.end - whole.begin));
  require(r.total.partition.communication_hidden <= r.total.partition.communication);
  fsdp::Nanos claimed = 0;
  for (const AnalysisFinding& f : r.findings) claimed += f.ns;
  require(claimed <= exposed(whole.classes));
}

// Analyses the bytes as a file, under one of the conventions.
inline void check_trace(const void* bytes, std::size_t n) {
  // A name of its own: SQLite follows /proc/self/fd to a file that has none.
  static const std::string path = "/dev/shm/shardscope-fuzz-" + std::to_string(getpid());
  static const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  require(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, bytes, n, 0) == static_cast<ssize_t>(n));
  AnalyzeOptions options;
  options.paths = {path};
  options.convention = static_cast<Convention>(n % 4);
  options.include_cut_step = n % 3 == 0;
  try {
    const TraceAnalysis a = analyze_traces(options);
    for (const RowAnalysis& r : a.rows) check_row(r);
    require(!to_json(a).empty() && !to_text(a).empty());
  } catch (const fsdp::Error&) {
    // One sentence is a right answer.
  }
}

}  // namespace harness::testing
