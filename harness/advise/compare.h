// Compare: may two results be compared at all, and if so, what differs, by how much and how surely. Pure functions of
// records; the fields that decide are those that the machine wrote, never what a person says.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/advise/effect.h"
#include "harness/store/records.h"

namespace harness {

// One side of a comparison.
struct Side {
  std::string name;    // as the user gave it
  std::string origin;  // of the results: equal origins are one results.db
  SweepRecord sweep;
  std::vector<CaseRecord> cases;
};

struct FieldDifference {
  std::string field, a, b;  // "absent" where a side does not have it
};

struct CompareOptions {
  std::set<std::string> allow;  // settings (the arms) and environment fields that may differ
  double noise = -1;            // half-width of an A/A comparison of the same case; negative: unknown (effect.h)
  double gate = -1;             // fails when B is surely slower by more than this (effect.h); negative: no gate
};

// Two runs of one case that did not compute the same.
struct NumericDifference {
  std::string what;  // "loss", "gradient norm"
  std::size_t step = 0;
  double a = 0, b = 0;
  double relative = 0;  // |a - b| over the larger; infinite where one is not a number
};

struct ComparedCase {
  std::size_t a = 0, b = 0;  // indices into the sides' cases
  std::string label;
  Effect effect;
  bool both_measured = false;  // else `note` says what became of them, and there is no effect
  std::string note;
  std::optional<NumericDifference> numeric;  // the worst of both kinds, where it is beyond rounding
  std::vector<FieldDifference> warnings;     // should be equal and are not
  bool gate_failed = false, gate_undecided = false;
};

struct Comparison {
  std::vector<FieldDifference> unlike;  // not empty: the sides cannot be compared, no number is given
  std::vector<ComparedCase> cases;
  std::vector<std::string> only_a, only_b;  // labels of cases without a partner
  std::vector<FieldDifference> warnings;    // of all cases, each once
  std::size_t numerics_differ = 0;          // cases; where the arms may differ in it there is a note instead
  std::vector<std::string> notes;
  std::string numbers_meant;  // the arms' setting by which losses may differ, where they do
  bool gate_failed = false;
  std::size_t gate_undecided = 0;  // cases; a gate that cannot be decided has not passed
  bool negative() const { return !unlike.empty() || numerics_differ > 0 || gate_failed || gate_undecided > 0; }
};

Comparison compare(const Side& a, const Side& b, const CompareOptions& options);

// Losses and norms of two runs of one case are compared before their times: a program that computes something else is
// not faster. Rounding (another order of sums) is up to 0.1 % of a loss and 1 % of a norm, 3 % and 30 % where a type of
// 16 bits or fewer takes part. `allow`ed settings that define what is computed, or "losses", make it a note.
std::optional<NumericDifference> numeric_difference(const CaseRecord& a, const CaseRecord& b);
std::string numeric_text(const NumericDifference& d);
// What became of cases that were not measured on both sides, worst news first: "3 lost: ok -> oom 2, ok -> timeout 1".
std::vector<std::string> status_texts(const Comparison& c, const Side& a, const Side& b);
std::string numerics_text(const Comparison& c);  // empty: nothing to say

// "failed", "passed", or what would decide it. With a gate only.
std::string gate_text(const Comparison& c);
std::string comparison_text(const Comparison& c, const Side& a, const Side& b, const CompareOptions& options);
std::string comparison_json(const Comparison& c, const Side& a, const Side& b, const CompareOptions& options);

// Baselines: what a comparison needs of a side, as one JSON file to be kept in a repository.
std::string baseline_json(const Side& side);
bool is_baseline(const std::string& text);
// Throws fsdp::ConfigError "[file] what; what to do".
Side baseline_from_json(const std::string& text, const std::string& file);

// "DIR", "DIR:backward_prefetch=pre" (the cases with these settings only), or a baseline file. The selected settings
// are added to `allow`: they are the arm.
struct SideName {
  std::string path;
  std::vector<std::pair<std::string, std::string>> selected;
};
SideName parse_side(const std::string& text, bool exists_as_given);
void select_cases(Side& side, const SideName& name);

}  // namespace harness
