// Our spans as a Chrome / Perfetto JSON trace ("shardscope-trace/1"). Both viewers open it, `analyze` reads it back
// exactly.
//
//   process   a rank, pid = 1000 * (rank + 1)
//   thread    a lane, tid = 10 * lane (+ 1, 2, ... for slices that cross others of their lane), and tid 90, what each
//             instant of the step is (the partition)
//   slice     name "AG model.layers.3 forward"; args: id, stream (lane + 1), unit, pass, step, bytes, issued (ns),
//             waits (ids)
//   arrow     from a collective to the span that waits for it
//   metadata  run facts as texts; "clock" and "regathered" as kineto_reader.h reads them
// Times are microseconds with three decimals, relative to baseTimeNanoseconds; events are ordered by time.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "fsdp/core/span.h"

namespace harness {

using TraceMetadata = std::map<std::string, std::string>;  // run facts, written as they are

// "AG model.layers.3 forward". `unit_names` is indexed by UnitId; a unit without a name is "unit 7".
std::string span_name(const fsdp::Span& span, const std::vector<std::string>& unit_names);

// Spans of any ranks, in any order. gzip if `path` ends in ".gz". Throws fsdp::ConfigError if the file cannot be made.
// `follow`: the file's folder may be a link.
void write_chrome_trace(const std::string& path, const std::vector<fsdp::Span>& spans,
                        const std::vector<std::string>& unit_names, const TraceMetadata& metadata = {},
                        bool follow = true);

}  // namespace harness
