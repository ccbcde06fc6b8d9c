// Runs a boundary search for one point of the other axes: fresh processes for each value, stored results count, skipped
// values are rows that say what dominates them, and a sample of those is run to score the rule.
#pragma once
#include <functional>
#include <optional>

#include "harness/sweep/boundary.h"
#include "harness/sweep/spec.h"

namespace harness {

struct BoundaryHooks {
  // What is stored of a case: its status and peak; std::nullopt for nothing, or a skipped row.
  std::function<std::optional<CaseRecord>(const SweepCase&)> stored;
  // Runs and stores. std::nullopt: interrupted.
  std::function<std::optional<CaseRecord>(const SweepCase&)> run;
  // The same for a check: the record says what the rule had expected (environment "boundary_check").
  std::function<std::optional<CaseRecord>(const SweepCase&, const std::string& expected)> run_check;
  std::function<void(const SweepCase&, const std::string& reason)> skip;  // stores a skipped row
  // The case with what this sweep has against running it; may be empty.
  std::function<SweepCase(SweepCase)> checked;
  // Index of the largest value that a prediction (the virtual world, say) expects to fit; may be empty.
  std::function<std::optional<int>(const std::vector<SweepCase>&)> predict;
};

struct BoundaryRun {
  BoundaryResult result;
  int checks = 0, checks_right = 0;
  bool interrupted = false;
};

// In a record's environment: "oom" or "fits".
inline constexpr const char* kBoundaryCheckKey = "boundary_check";
// In the environment of a search's trials: the largest value that was predicted to fit; "none".
inline constexpr const char* kBoundaryPredictedKey = "boundary_predicted";

// The index of the largest of `count` values, in the order of growing memory, that fits according to `fits`; -1: none.
// Asks at most ceil(log2(count + 1)) times. std::nullopt as soon as `fits` cannot tell.
std::optional<int> largest_that_fits(int count, const std::function<std::optional<bool>(int)>& fits);

// `point`: the other axes' values.
BoundaryRun run_boundary(const SweepSpec& spec, const std::vector<std::pair<std::string, std::string>>& point,
                         const BoundaryHooks& hooks);

// "dominated by batch=20, which ran out of memory", "dominated by batch=19, which fits".
std::string skip_reason(const BoundarySpec& spec, const BoundaryResult& result, int index);

}  // namespace harness
