// Effect: does B differ from A, by how much, and how sure is that? Signed ranks of paired log ratios, or order
// statistics of two runs; no distribution is assumed. Verdicts with a margin, so that "same" is a finding and not the
// absence of one.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

// kUnknown: fewer than three values. The first three only where the interval's coverage is at least kLeastCoverage:
// from six pairs, or six repetitions of both runs, on.
enum class Verdict { kSame, kFaster, kSlower, kAmbiguous, kUnknown };
inline constexpr double kLeastCoverage = 0.95;
std::string_view name_of(Verdict v);

struct Effect {
  double effect = 0;         // B / A - 1
  double low = 0, high = 0;  // interval of the effect
  double coverage = 0;       // of the interval
  double margin = 0.01;      // what counts as the same
  bool interleaved = false;
  Verdict verdict = Verdict::kUnknown;
};

// Pair i is (a[i], b[i]), taken one after the other in fresh processes: what differs between equal programs is in the
// interval already. `noise_floor`: half-width of an A/A comparison; negative: unknown, then 1.5 % for pairs and 2 % for
// stored runs.
Effect paired_effect(const std::vector<fsdp::Nanos>& a, const std::vector<fsdp::Nanos>& b, double noise_floor);
// Stored results of two runs: [low_b / high_a, high_b / low_a] of their medians' intervals.
Effect unpaired_effect(const std::vector<fsdp::Nanos>& a, const std::vector<fsdp::Nanos>& b, double noise_floor);

// Two predictions of the same case and hardware: nothing about them is noise.
Effect predicted_effect(fsdp::Nanos a, fsdp::Nanos b);

// Whether there are enough values for one of the sure verdicts.
bool can_be_sure(const Effect& e);

// A gate of g (0.03 = 3 %) fails only when B is surely slower by more than g.
bool gate_fails(const Effect& e, double gate);
// B looks slower by more than g, and there are too few values for a sure verdict: neither passed nor failed.
bool gate_undecided(const Effect& e, double gate);

}  // namespace harness
