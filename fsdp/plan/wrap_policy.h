// Wrap policies: ModuleTree -> UnitPlan, pure functions. Grammar of the text form (INTERFACE `wrap`):
//   root | block | blocks:K | sublayer | size:MIN_PARAMS | class:Name[,Name...] | plan:FILE.yaml
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "fsdp/plan/module_tree.h"
#include "fsdp/plan/unit_plan.h"

namespace fsdp {

struct WrapRoot {};
struct WrapBlocks {
  int per_unit = 1;  // consecutive blocks in one unit
};
struct WrapSublayer {};
struct WrapSize {
  Count min_params = 0;  // elements, inclusive; the recursion of torch's size_based_auto_wrap_policy (fsdp.md 1.3, 1.4)
};
struct WrapClass {
  std::vector<std::string> names;  // module types, or module paths; `*` matches within a path
};
struct PlanLine {
  std::string match;  // module path pattern, `*` matches any run of characters but a dot
  UnitOptions options;
};
struct WrapPlan {
  std::vector<PlanLine> lines;
};
using WrapPolicy = std::variant<WrapRoot, WrapBlocks, WrapSublayer, WrapSize, WrapClass, WrapPlan>;

// Throws ConfigError naming what is wrong and what would be right. `plan:` files are read by parse_wrap_plan.
// `defaults` fills what a plan file's lines leave out.
WrapPolicy parse_wrap(const std::string& text, const UnitOptions& defaults);
WrapPlan parse_wrap_plan(const std::string& yaml_text, const std::string& file_name, const UnitOptions& defaults);

// Units in pre-order, tied parameters merged into their lowest common unit, a note for each decision worth telling.
// Throws ConfigError when no module matches (the text lists the nearest names).
UnitPlan make_unit_plan(const ModuleTree& tree, const WrapPolicy& policy, const UnitOptions& defaults);

}  // namespace fsdp
