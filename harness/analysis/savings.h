// By how much a step would be shorter if compute did not have to wait for one unit's collectives of one pass: the
// collectives run as long as they did, but nothing on the compute lane (and no host that stands for it) waits for them.
// It is at most what is exposed, and often less: behind one wait there may be the next one, or a host that is late.
#pragma once
#include <vector>

#include "harness/analysis/partition.h"
#include "harness/analysis/row_index.h"

namespace harness {

class SpanIndex;

struct Saving {
  fsdp::UnitId unit = fsdp::kNoUnit;
  fsdp::Pass pass = fsdp::Pass::kNone;
  fsdp::SpanKind collective = fsdp::SpanKind::kOtherCollective;
  fsdp::Nanos exposed_ns = 0;  // charged to them
  fsdp::Nanos saved_ns = 0;    // <= exposed_ns
};

// Own runs: the step is played again from its recorded issue times, lanes, communicators and waits, without the waits
// in question. What a span waited for without saying so it waits for again. `spans` are the rank's, `step` is one of
// partition_steps(spans). A row for each unit, pass and kind with exposed time, the largest saving first.
std::vector<Saving> savings_of(const std::vector<fsdp::Span>& spans, const StepPartition& step);
// Likewise, for many steps of the same spans; of more than `most` rows those with the most exposed time.
std::vector<Saving> savings_of(const SpanIndex& index, const StepPartition& step, std::size_t most);

// Adds to the row of the same unit, pass and kind; `list` tells the lists of one index apart.
void add_saving(RowIndex& index, std::vector<Saving>& all, int list, const Saving& s);
// The largest saving first; ties: more exposed, then unit and pass.
void sort_savings(std::vector<Saving>& all);

}  // namespace harness
