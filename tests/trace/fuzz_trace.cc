// libFuzzer target: any bytes are a trace. Build with clang and -DSHARDSCOPE_FUZZ=ON; run with a folder of small
// traces.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "fsdp/core/errors.h"
#include "harness/trace/analyze.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  static const int file = memfd_create("trace", 0);
  if (ftruncate(file, 0) != 0 || pwrite(file, bytes, n, 0) != static_cast<ssize_t>(n)) std::abort();
  harness::AnalyzeOptions options;
  options.paths = {"/proc/self/fd/" + std::to_string(file)};
  try {
    const harness::TraceAnalysis a = harness::analyze_traces(options);
    for (const harness::RowAnalysis& r : a.rows) {
      const harness::StepPartition& p = r.partition.whole.partition;
      if (harness::sum(p.classes) != p.end - p.begin) std::abort();
    }
    harness::to_json(a);
    harness::to_text(a);
  } catch (const fsdp::Error&) {
    // One sentence is a right answer.
  }
  return 0;
}
