// Reads torch.profiler (Kineto) traces, JSON or gzip, of any age, and our own traces (chrome_writer.h).
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fsdp/core/span.h"
#include "harness/trace/foreign_trace.h"

namespace harness {

// What the metadata of one of our own traces says of its ranks: "clock": "one", "regathered": "3 4" (indices of units).
struct OwnRun {
  bool one_clock = false;  // all ranks stamped with one host's clock
  // Units that groups smaller than those of their forward gather in backward; std::nullopt: the trace does not say.
  std::optional<std::set<fsdp::UnitId>> regathered;
};

// Our own trace, read back: the spans as they were written, and what the file says about them.
struct OwnTrace {
  OwnRun run;
  std::vector<fsdp::Span> spans;
  std::vector<std::string> unit_names;
};

struct JsonTrace {
  ForeignTrace trace;
  OwnTrace own;  // filled if trace.facts.source is kShardscope; then the foreign part is empty
};

// Throws fsdp::ConfigError if the file cannot be opened or is no trace; a damaged one is read as far as it goes, see
// facts.defects.
JsonTrace read_json_trace(const std::string& path);

}  // namespace harness
