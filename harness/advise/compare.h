// Compare: may two results be compared at all, and if so, what differs, by how much and how surely. Pure functions of
// records; the fields that decide are those that the machine wrote, never what a person says.
#pragma once
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

struct ComparedCase {
  std::size_t a = 0, b = 0;  // indices into the sides' cases
  std::string label;
  Effect effect;
  bool both_measured = false;  // else `note` says what became of them, and there is no effect
  std::string note;
  std::vector<FieldDifference> warnings;  // should be equal and are not
  bool gate_failed = false, gate_undecided = false;
};

struct Comparison {
  std::vector<FieldDifference> unlike;  // not empty: the sides cannot be compared, no number is given
  std::vector<ComparedCase> cases;
  std::vector<std::string> only_a, only_b;  // labels of cases without a partner
  std::vector<FieldDifference> warnings;    // of all cases, each once
  std::vector<std::string> notes;
  bool gate_failed = false;
  std::size_t gate_undecided = 0;  // cases; a gate that cannot be decided has not passed
  bool negative() const { return !unlike.empty() || gate_failed || gate_undecided > 0; }
};

Comparison compare(const Side& a, const Side& b, const CompareOptions& options);

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
