// One representative rank of a world that is not there: the same scheduler, runtime and model as everywhere, on tensors
// without memory and a clock of costs. Peak memory is exact; times are as good as the costs. Used from one thread; no
// torch in this header.
#pragma once
#include "harness/trial/messages.h"
#include "harness/trial/rank_progress.h"

namespace harness {

struct VirtualRun {
  RankResult result;        // with the spans of one step, of order and length as all later ones
  fsdp::Nanos step_ns = 0;  // of that step
};
// Two steps: the first records the order, the second is every other. `with_spans` false: none are kept.
// Throws fsdp::ConfigError, OutOfMemory.
VirtualRun run_virtual(const RankJob& job, RankProgress& progress, bool with_spans);

}  // namespace harness
