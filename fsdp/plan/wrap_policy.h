// Wrap policies: ModuleTree -> UnitPlan, pure functions. Grammar of the text form (the setting `wrap`):
//   root | block | blocks:K | sublayer | size:MIN_PARAMS | class:Name[,Name...] | plan:FILE.yaml
#pragma once
#include <string>
#include <string_view>
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
  Count min_params = 0;  // elements, inclusive; the recursion of torch's size_based_auto_wrap_policy
};
struct WrapClass {
  std::vector<std::string> names;  // module types (case-sensitive), or module paths; `*` matches within a path
};
// One entry of a plan file. Where entries overlap the last one decides, and a note says so.
struct PlanLine {
  // Module path patterns, `*` matches any run of characters but a dot. "root" alone: the options of the root unit.
  std::vector<std::string> match;
  UnitOptions options;    // those that are named in `given`
  bool together = false;  // (a YAML list) all modules matched form one unit; else each is a unit of its own
  int line = 0;           // in the file, from 1; 0: not from a file
  std::vector<std::string> given = {};
};
// With `defaults` for what the entry leaves out.
UnitOptions options_of(const PlanLine& line, const UnitOptions& defaults);
struct WrapPlan {
  std::vector<PlanLine> lines;
  std::string file;
};
using WrapPolicy = std::variant<WrapRoot, WrapBlocks, WrapSublayer, WrapSize, WrapClass, WrapPlan>;

// Throws ConfigError naming what is wrong and what would be right. No file is read here: `plan_text` is the content of
// the file that plan:FILE names.
WrapPolicy parse_wrap(const std::string& text, const std::string& plan_text = {});
// FILE of plan:FILE; empty for any other form.
std::string wrap_plan_file(const std::string& text);
WrapPlan parse_wrap_plan(const std::string& yaml_text, const std::string& file_name);

// `*` matches any run of characters but a dot; everything else matches itself.
bool path_matches(std::string_view pattern, std::string_view path);

// Units in pre-order, tied parameters merged into their lowest common unit, a note for each decision worth telling.
// Throws ConfigError when no module matches (the text lists the nearest names).
UnitPlan make_unit_plan(const ModuleTree& tree, const WrapPolicy& policy, const UnitOptions& defaults);

}  // namespace fsdp
