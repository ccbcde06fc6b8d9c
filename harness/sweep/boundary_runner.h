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
  // Index of the largest value that a prediction (the virtual world, say) expects to fit; may be empty.
  std::function<std::optional<int>(const std::vector<SweepCase>&)> predict;
};

struct BoundaryRun {
  BoundaryResult result;
  int checks = 0, checks_right = 0;
  bool interrupted = false;
};

inline constexpr const char* kBoundaryCheckKey = "boundary_check";  // in a record's environment: "oom" or "fits"

// `point`: the other axes' values.
BoundaryRun run_boundary(const SweepSpec& spec, const std::vector<std::pair<std::string, std::string>>& point,
                         const BoundaryHooks& hooks);

// "dominated by batch=20, which ran out of memory", "dominated by batch=19, which fits".
std::string skip_reason(const BoundarySpec& spec, const BoundaryResult& result, int index);

}  // namespace harness
