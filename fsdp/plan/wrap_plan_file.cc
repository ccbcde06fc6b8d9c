// Reads wrap plan files (YAML).
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "fsdp/plan/unit_options.h"
#include "fsdp/plan/wrap_policy.h"
#include "fsdp/plan/yaml_text.h"

namespace fsdp {
namespace {

const std::vector<std::string>& line_keys() {
  static const std::vector<std::string> kKeys = [] {
    std::vector<std::string> keys = {"match"};
    for (const UnitOptionRow& row : unit_option_table()) keys.emplace_back(row.name);
    return keys;
  }();
  return kKeys;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  WrapPlan read(const std::string& text) const {
    YAML::Node root;
    try {
      root = load_yaml(text, file_);
    } catch (const YAML::Exception& e) {
      fail(e.mark, "not YAML: " + e.msg + "; put patterns in quotes, as in match: \"*.mlp\"");
    }
    if (!root.IsMap())
      fail(root.Mark(), "a plan is a map with the key 'units'; for example units: [{match: \"lm_head\"}]");
    YAML::Node units;
    for (const auto& entry : root) {
      const std::string key = scalar(entry.first, "a key");
      if (key != "units") unknown_key(entry.first, key, {"units"});
      units.reset(entry.second);
    }
    if (!units.IsDefined() || !units.IsSequence() || units.size() == 0) {
      fail(units.IsDefined() ? units.Mark() : root.Mark(),
           "'units' must be a list with at least one entry that has a 'match'");
    }
    WrapPlan plan;
    plan.file = file_;
    for (const YAML::Node& unit : units) plan.lines.push_back(read_line(unit));
    return plan;
  }

 private:
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    const std::string line = mark.line >= 0 ? ":" + std::to_string(mark.line + 1) : "";
    throw ConfigError("[" + file_ + line + "] " + what);
  }

  [[noreturn]] void unknown_key(const YAML::Node& at, const std::string& key,
                                const std::vector<std::string>& allowed) const {
    fail(at.Mark(),
         "unknown key '" + key + "' (nearest: " + nearest_names(key, allowed, 1) + "); allowed: " + list(allowed));
  }

  std::string scalar(const YAML::Node& node, const std::string& what) const {
    if (!node.IsScalar() || node.Scalar().empty()) fail(node.Mark(), what + " must be a single, non-empty value");
    return node.Scalar();
  }

  PlanLine read_line(const YAML::Node& unit) const {
    if (!unit.IsMap()) fail(unit.Mark(), "a unit is a map with the keys " + list(line_keys()));
    PlanLine line;
    line.line = unit.Mark().line + 1;
    std::vector<std::string> seen;
    for (const auto& entry : unit) {
      const std::string key = scalar(entry.first, "a key");
      if (std::find(line_keys().begin(), line_keys().end(), key) == line_keys().end())
        unknown_key(entry.first, key, line_keys());
      if (std::find(seen.begin(), seen.end(), key) != seen.end())
        fail(entry.first.Mark(), "'" + key + "' stands twice in this unit; keep one");
      seen.push_back(key);
      if (key == "match") {
        line.match = patterns(entry.second);
        line.together = entry.second.IsSequence();
        continue;
      }
      const std::string value = scalar(entry.second, "'" + key + "'");
      try {
        unit_option(key).parse(line.options, value);
      } catch (const ConfigError& e) {
        fail(entry.second.Mark(), key + ": " + e.what());
      }
      line.given.push_back(key);
    }
    if (line.match.empty())
      fail(unit.Mark(), "this unit has no 'match'; name the modules, as in match: \"model.layers.*\"");
    return line;
  }

  std::vector<std::string> patterns(const YAML::Node& node) const {
    if (node.IsScalar()) return {scalar(node, "'match'")};
    if (!node.IsSequence() || node.size() == 0) {
      fail(node.Mark(), "'match' is a module path pattern, or a list of patterns whose modules form one unit");
    }
    std::vector<std::string> all;
    for (const YAML::Node& item : node) all.push_back(scalar(item, "a pattern of 'match'"));
    return all;
  }

  const std::string& file_;
};

}  // namespace

UnitOptions options_of(const PlanLine& line, const UnitOptions& defaults) {
  UnitOptions o = defaults;
  for (const std::string& key : line.given) unit_option(key).copy(o, line.options);
  return o;
}

WrapPlan parse_wrap_plan(const std::string& yaml_text, const std::string& file_name) {
  return Reader(file_name).read(yaml_text);
}

}  // namespace fsdp
