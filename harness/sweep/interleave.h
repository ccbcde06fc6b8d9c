// Interleaved arms: a case is measured in rounds, each a trial of its own in fresh processes, and the cases take turns,
// there and back (A B C, C B A, ...), so that what drifts on the machine falls on all of them alike. Sample i of each
// case was taken in round i: the lower quartile of the repetitions of that trial (undisturbed in statistics.h).
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "harness/analysis/statistics.h"
#include "harness/store/records.h"

namespace harness {

inline constexpr const char* kInterleavedKey = "interleaved";  // in a record's environment: the number of rounds

// Runs case `index` once, with the untraced repetitions of a round, traced too when asked. std::nullopt: interrupted.
using RunRound = std::function<std::optional<CaseRecord>(std::size_t index, bool traced)>;
// Told each case once, when all its rounds are done.
using CaseDone = std::function<void(std::size_t index, CaseRecord record)>;

// Told each round that was measured, at once: what an interrupted call leaves for the next one.
using RoundDone = std::function<void(std::size_t index, std::size_t round, const CaseRecord& record)>;

// `rounds`: what an earlier call has measured of each case, in order; empty, or one list for each case. A round that
// not all cases have is begun anew: its arms would not have been taken in turns. Rounds go on until what is to be
// compared is known well enough: the interval of each case's ratio to the first one has a half-width of at most
// `relative_ci` (of a case alone: of its step, `alone_relative_ci`); or `max` rounds, or the time of the policy, times
// the cases, is spent in this call; at least `min`. The width alone decides, not where the interval lies, so that
// looking after each round hardly makes equal arms look different. With the default, half the margin of `same`, a
// difference of twice the margin is found nearly always. A case that ends badly leaves the turns with that record.
// False: interrupted; nothing of the unfinished cases is told to `done`.
bool run_interleaved(std::size_t cases, const RepeatPolicy& policy, double alone_relative_ci, bool trace,
                     const RunRound& run, const CaseDone& done, std::vector<std::vector<CaseRecord>> rounds = {},
                     const RoundDone& round_done = {});

// The record of all rounds: the first one's, with a sample of every round and the numbers that follow from them.
CaseRecord merge_rounds(const std::vector<CaseRecord>& rounds, const std::string& stopped_by);

}  // namespace harness
