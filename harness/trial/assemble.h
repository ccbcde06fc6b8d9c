// From what the ranks sent to what is kept: pure functions of values.
#pragma once
#include <vector>

#include "harness/analysis/statistics.h"
#include "harness/store/records.h"
#include "harness/sweep/settings.h"
#include "harness/trial/messages.h"

namespace harness {

// A record with everything that is known before a case has run: id, settings, environment, command.
CaseRecord begin_record(const CaseSettings& settings);

// The units' table, their number, the largest; the plan's notes become warnings. Throws fsdp::ConfigError.
void fill_units(CaseRecord& record, const CaseSettings& settings);

// Samples -> step_ns and its statistics, tokens_per_s.
void fill_samples(CaseRecord& record, const CaseSettings& settings, const std::vector<fsdp::Nanos>& samples,
                  RepeatStop stop);

// The rest of a good run, ranks in order; sets the status to ok or near_oom (peak at 95 % of the budget or above).
// The partition describes the step of median length on the slowest rank: the largest total traced time, the lowest rank
// on a tie. Call fill_samples first.
void fill_results(CaseRecord& record, const CaseSettings& settings, const std::vector<RankResult>& results);

}  // namespace harness
