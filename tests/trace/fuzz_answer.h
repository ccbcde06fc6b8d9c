// What every fuzzed trace must give: an answer whose numbers add up, or one sentence; and memory in proportion to its
// text. Everything else ends the process.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "fsdp/core/errors.h"
#include "harness/trace/analyze.h"
#include "tests/testing/heap_meter.h"

namespace harness::testing {

inline void require(bool holds) {
  if (!holds) std::abort();
}

using testing_support::HeapMeter;

constexpr double kFixedBytes = 64e6;    // buffers that every file gets
constexpr double kBytesAByte = 100;     // of text
constexpr double kMostInflated = 1032;  // bytes of text that a byte of gzip can hold

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
  for (const Unclassified& u : r.unclassified) require(u.pct >= 0 && u.pct <= 100 && !u.text.empty());
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
  HeapMeter::get().reset();
  const auto* first = static_cast<const unsigned char*>(bytes);
  const bool gzip = n >= 2 && first[0] == 0x1f && first[1] == 0x8b;
  double text = static_cast<double>(n) * (gzip ? kMostInflated : 1);
  try {
    const TraceAnalysis a = analyze_traces(options);
    if (gzip) text = static_cast<double>(a.files.at(0).facts.text_bytes);
    for (const RowAnalysis& r : a.rows) check_row(r);
    require(!to_json(a).empty() && !to_text(a).empty());
  } catch (const fsdp::Error&) {
    // One sentence is a right answer.
  }
  require(HeapMeter::get().peak() <= kFixedBytes + kBytesAByte * text);
}

}  // namespace harness::testing
