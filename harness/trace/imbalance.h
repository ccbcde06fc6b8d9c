// Uneven ranks: how much of the step they spend waiting for the last of them, which no faster network would end.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/span.h"
#include "harness/trace/analyze.h"
#include "harness/trace/kineto_reader.h"

namespace harness {

struct Imbalance {
  double pct = 0;         // of the steps, the mean over ranks
  double waited_ns = 0;   // of all ranks: up to what is exposed of each rank's communication
  double exposed_ns = 0;  // communication of all ranks
};

// One row a rank, in the order of the alignment's clocks; else nothing can be said.
std::optional<Imbalance> imbalance_of(const Alignment& alignment, const std::vector<RowAnalysis>& rows);

// "imbalance 40 % of the step: ...".
std::string imbalance_text(const Imbalance& i);

// The ranks of one of our own traces: a collective's unit, pass and kind say which it is. Gathers in backward over the
// groups of `reshard_after_forward: GROUP` are left out: not all ranks are their members, and nothing else than `run`
// tells them from others; where it does not say, so are all gathers in backward of units that forward had gathered.
// std::nullopt: longer than a day, more than 65,536 collectives a rank, or hybrid plans, in which not all ranks are
// members of the same collectives.
std::optional<Alignment> align_own(const std::vector<fsdp::Span>& spans, const OwnRun& run);

}  // namespace harness
