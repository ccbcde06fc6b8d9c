#include "fsdp/plan/wrap_policy.h"

#include <charconv>
#include <optional>
#include <sstream>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "fsdp/plan/selection.h"

namespace fsdp {
namespace {

constexpr const char* kForms = "root, block, blocks:K, sublayer, size:MIN_PARAMS, class:Name[,Name...], plan:FILE.yaml";

std::optional<Count> whole_number(const std::string& text) {
  Count n = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || r.ec != std::errc{} || r.ptr != text.data() + text.size()) return std::nullopt;
  return n;
}

std::string trim(const std::string& s) {
  const auto begin = s.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return s.substr(begin, s.find_last_not_of(" \t") - begin + 1);
}

WrapBlocks parse_blocks(const std::string& value) {
  const auto k = whole_number(value);
  if (!k || *k < 1 || *k > 1'000'000) {
    throw ConfigError("[wrap] blocks:" + value +
                      " needs a number of blocks per unit, at least 1; for example blocks:2");
  }
  return {static_cast<int>(*k)};
}

WrapSize parse_size(const std::string& value) {
  const auto n = whole_number(value);
  if (!n || *n < 1) {
    throw ConfigError("[wrap] size:" + value +
                      " needs the least number of parameters of a unit, an integer of at least " +
                      "1 that counts elements, not bytes; for example size:100000000");
  }
  return {*n};
}

WrapClass parse_class(const std::string& value) {
  WrapClass policy;
  std::istringstream names(value);
  for (std::string name; std::getline(names, name, ',');) {
    if (!trim(name).empty()) policy.names.push_back(trim(name));
  }
  if (policy.names.empty()) {
    throw ConfigError("[wrap] class: names no module type; for example class:LlamaDecoderLayer,Embedding");
  }
  return policy;
}

WrapPlan read_plan(const std::string& file, const std::string& text) {
  if (file.empty()) throw ConfigError("[wrap] plan: names no file; for example plan:units.yaml");
  if (text.empty())
    throw ConfigError("[wrap] the plan file '" + file +
                      "' is empty; give units, for example units: [{match: lm_head}]");
  return parse_wrap_plan(text, file);
}

// The largest module that a size policy could make a unit, for advice; 0 if there is none.
ModuleId largest_possible_unit(const ModuleTree& tree) {
  ModuleId best = 0;
  Count most = 0;
  for (std::size_t m = 1; m < tree.modules.size(); ++m) {
    // A module is no larger than its parent: only the children of the root and what lies in containers can win.
    const ModuleInfo& parent = tree.modules[tree.modules[m].parent];
    if (is_container(tree.modules[m]) || (tree.modules[m].parent != 0 && !is_container(parent))) continue;
    const Count n = tree.subtree_numel(static_cast<ModuleId>(m));
    if (n > most) best = static_cast<ModuleId>(m), most = n;
  }
  return best;
}

std::string one_unit_note(const ModuleTree& tree, const UnitSpec& unit) {
  const auto bytes = [](Count n, Dtype d) { return std::to_string(n * size_of(d)) + " bytes"; };
  std::string note = "one unit holds 100 % of the parameters: all-gather buffer " +
                     bytes(unit.numel, unit.options.param_dtype) + ", reduce-scatter buffer " +
                     bytes(unit.numel, unit.options.reduce_dtype) + ", and no communication overlaps";
  for (std::size_t m = 0; m < tree.modules.size(); ++m) {
    if (!tree.modules[m].is_block) continue;
    return note + "; a block (" + tree.modules[m].path + ") is " +
           bytes(tree.subtree_numel(static_cast<ModuleId>(m)), unit.options.param_dtype);
  }
  if (const ModuleId m = largest_possible_unit(tree); m > 0) {
    note += "; the largest module below the root is " + tree.modules[m].path + " with " +
            std::to_string(tree.subtree_numel(m)) + " parameters";
  }
  return note;
}

Selection select_units(const ModuleTree& tree, const WrapPolicy& policy, const UnitOptions& defaults) {
  struct Visitor {
    const ModuleTree& tree;
    const UnitOptions& defaults;
    Selection operator()(const WrapRoot&) const { return Selection(tree, defaults); }
    Selection operator()(const WrapBlocks& p) const { return select_blocks(tree, p, defaults); }
    Selection operator()(const WrapSublayer&) const { return select_sublayers(tree, defaults); }
    Selection operator()(const WrapSize& p) const { return select_by_size(tree, p, defaults); }
    Selection operator()(const WrapClass& p) const { return select_by_class(tree, p, defaults); }
    Selection operator()(const WrapPlan& p) const { return select_by_plan(tree, p, defaults); }
  };
  return std::visit(Visitor{tree, defaults}, policy);
}

}  // namespace

std::string wrap_plan_file(const std::string& text) {
  constexpr std::string_view kHead = "plan:";
  return text.rfind(kHead, 0) == 0 ? text.substr(kHead.size()) : "";
}

WrapPolicy parse_wrap(const std::string& text, const std::string& plan_text) {
  const auto colon = text.find(':');
  const std::string form = text.substr(0, colon);
  const bool has_value = colon != std::string::npos;
  const std::string value = has_value ? text.substr(colon + 1) : "";
  if (!has_value) {
    if (form == "root") return WrapRoot{};
    if (form == "block") return WrapBlocks{};
    if (form == "sublayer") return WrapSublayer{};
  }
  if (form == "blocks") return parse_blocks(value);
  if (form == "size") return parse_size(value);
  if (form == "class") return parse_class(value);
  if (form == "plan") return read_plan(value, plan_text);
  const std::string nearest =
      form == "block" ? "blocks"
                      : nearest_names(form, {"root", "block", "blocks", "sublayer", "size", "class", "plan"}, 1);
  throw ConfigError("[wrap] '" + text + "' is not a wrap policy (nearest: " + nearest + "); allowed: " + kForms);
}

bool path_matches(std::string_view pattern, std::string_view path) {
  // Stars do not cross dots, so on a mismatch only the last star can still take one more character.
  std::size_t at = 0, star = std::string_view::npos, taken = 0, p = 0;
  while (at < path.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = at;
    } else if (p < pattern.size() && pattern[p] == path[at]) {
      ++p, ++at;
    } else if (star != std::string_view::npos && path[taken] != '.') {
      p = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

UnitPlan make_unit_plan(const ModuleTree& tree, const WrapPolicy& policy, const UnitOptions& defaults) {
  SHARDSCOPE_CHECK(!tree.modules.empty(), "a tree without a root");
  UnitPlan plan = assemble_plan(tree, select_units(tree, policy, defaults));
  const bool asked_for_one = std::holds_alternative<WrapRoot>(policy);
  if (plan.units.size() == 1 && !asked_for_one && plan.units[0].options.strategy != Strategy::kNoShard) {
    plan.notes.push_back(one_unit_note(tree, plan.units[0]));
  }
  return plan;
}

}  // namespace fsdp
