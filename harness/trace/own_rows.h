// Our own traces: the waits are known, so the partition is the one of the run; what other tools would say about the
// same spans is worked out from what ran when.
#pragma once
#include <vector>

#include "harness/trace/analyze.h"
#include "harness/trace/kineto_reader.h"

namespace harness {

// A row for each rank. For the other conventions compute, optimizer and copies stand for kernels, collectives for
// NCCL's.
std::vector<RowAnalysis> own_rows(const OwnTrace& trace, const AnalyzeOptions& options, std::size_t file);

}  // namespace harness
