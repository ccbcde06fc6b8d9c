// Snippets: a case's wrap policy as Python for PyTorch, for the model's own module names, runnable as they are.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fsdp/plan/module_tree.h"
#include "fsdp/plan/unit_plan.h"
#include "harness/sweep/settings.h"

namespace harness {

// What a snippet is made from.
struct Policy {
  CaseSettings settings;
  fsdp::ModuleTree tree;
  fsdp::UnitPlan plan;
};
Policy policy_of(const CaseSettings& settings);  // throws fsdp::ConfigError as the plan room does

// Defines apply_policy(model, device_type="cuda"): fully_shard calls from the inside out, reshard flags, mixed
// precision, prefetch lists. What FSDP2 has no counterpart for is told in comments.
std::string fsdp2_snippet(const Policy& policy);
// Defines wrap_model(model, device_id=None), which returns a FullyShardedDataParallel. Throws fsdp::ConfigError where
// fsdp1_obstacle() gives a reason.
std::string fsdp1_snippet(const Policy& policy);
// Why FSDP1 cannot hold these units: it wraps single modules only.
std::optional<std::string> fsdp1_obstacle(const Policy& policy);

namespace snippet_detail {

// Lines of a Python list of (names, options) for units 1..., repeated patterns as comprehensions over `i`.
struct ListedUnit {
  std::vector<std::string> names;
  std::string options;  // Python expression
};
std::vector<std::string> list_units(const std::vector<ListedUnit>& units);

std::string reshard_text(const fsdp::UnitSpec& unit);  // "True", "False", "4"
std::vector<const fsdp::UnitSpec*> units_without_root(const fsdp::UnitPlan& plan);
const fsdp::UnitSpec* root_unit(const fsdp::UnitPlan& plan);  // null: the root owns no parameters
std::vector<std::string> module_names(const Policy& policy, const fsdp::UnitSpec& unit);
std::string header(const Policy& policy, const std::string& what, const std::vector<std::string>& notes);
// Options of the units: the root's, or the defaults where there is no root unit.
fsdp::UnitOptions root_options(const Policy& policy);
std::string torch_dtype(fsdp::Dtype d);
// A function module_of(model, name) for names that differ between versions of transformers, before the policy itself;
// empty where all names of the units hold in each. `get_module` is the expression for the module of `name` then.
std::string name_finder(const Policy& policy);
std::string get_module(const Policy& policy);
// Lines that put the blocks under activation checkpointing; empty without.
std::vector<std::string> checkpoint_lines(const Policy& policy);

}  // namespace snippet_detail
}  // namespace harness
