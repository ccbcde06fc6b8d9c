// Reads torch.profiler (Kineto) traces, JSON or gzip, of any age, and our own traces (chrome_writer.h).
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/span.h"
#include "harness/trace/foreign_trace.h"

namespace harness {

// Our own trace, read back: the spans as they were written, and what the file says about them.
struct OwnTrace {
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
