// Cases that the scripts of this folder send, one JSON document a line.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "fsdp/plan/module_tree.h"
#include "fsdp/plan/unit_plan.h"
#include "harness/sweep/settings.h"
#include "harness/workload/trainer.h"

namespace harness {

// {"settings": {...}, "chain": [0, 0, 1], ...}. "chain": the blocks of chain.h, in this order, instead of the model.
// Throws ConfigError.
struct ParityCase {
  explicit ParityCase(const nlohmann::json& document);

  fsdp::ModuleTree tree() const;
  fsdp::UnitPlan plan() const;
  TrainerSettings trainer_settings(const fsdp::UnitPlan& plan) const;

  CaseSettings settings;
  std::vector<int> chain;  // empty: none
};

// From standard input to standard output: an answer a line, {"error": text} where `answer` throws.
void answer_lines(const std::function<nlohmann::json(const nlohmann::json&)>& answer);

}  // namespace harness
