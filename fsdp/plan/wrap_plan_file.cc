// Reads wrap plan files (YAML), and the unit options that they share with the case settings.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "fsdp/plan/wrap_policy.h"

namespace fsdp {
namespace {

const std::vector<std::string> kLineKeys = {"match",        "strategy",     "param_dtype",
                                            "reduce_dtype", "output_dtype", "reshard_after_forward"};

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

[[noreturn]] void refuse(const std::string& key, const std::string& text, const std::string& allowed) {
  throw ConfigError(key + ": '" + text + "' is not one of the values; allowed: " + allowed);
}

// A whole number of at least 1, or 0 for anything else.
int positive(std::string_view text) {
  int n = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), n);
  return !text.empty() && r.ec == std::errc{} && r.ptr == text.data() + text.size() && n >= 1 ? n : 0;
}

void set_strategy(UnitOptions& o, const std::string& text) {
  const auto colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const int group = colon == std::string::npos ? 0 : positive(std::string_view(text).substr(colon + 1));
  for (Strategy s : {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kNoShard, Strategy::kHybridShard,
                     Strategy::kHybridShardZero2}) {
    const bool hybrid = s == Strategy::kHybridShard || s == Strategy::kHybridShardZero2;
    if (name != name_of(s) || hybrid != (group > 0) || hybrid != (colon != std::string::npos)) continue;
    o.strategy = s;
    o.group = group;
    return;
  }
  refuse(
      "strategy", text,
      "full_shard, shard_grad_op, no_shard, hybrid_shard:GROUP, hybrid_shard_zero2:GROUP (GROUP: ranks that share one "
      "copy)");
}

Dtype dtype_of(const std::string& key, const std::string& text) {
  for (Dtype d : {Dtype::kFloat32, Dtype::kBFloat16}) {
    if (text == name_of(d)) return d;
  }
  refuse(key, text, "fp32, bf16");
}

void set_output_dtype(UnitOptions& o, const std::string& text) {
  if (text == "auto") {
    o.output_dtype.reset();
  } else if (text == name_of(Dtype::kFloat32) || text == name_of(Dtype::kBFloat16)) {
    o.output_dtype = dtype_of("output_dtype", text);
  } else {
    refuse("output_dtype", text, "auto, fp32, bf16");
  }
}

void set_reshard(UnitOptions& o, const std::string& text) {
  o.reshard_group = 0;
  if (text == "auto") {
    o.reshard_after_forward.reset();
  } else if (text == "true" || text == "false") {
    o.reshard_after_forward = text == "true";
  } else if (const int group = positive(text); group > 0) {
    o.reshard_after_forward = group > 1;  // a copy over one rank is the whole: kept
    o.reshard_group = group > 1 ? group : 0;
  } else {
    refuse("reshard_after_forward", text, "auto, true, false, or the ranks of a smaller group");
  }
}

class Reader {
 public:
  Reader(const std::string& file, const UnitOptions& defaults) : file_(file), defaults_(defaults) {}

  WrapPlan read(const std::string& text) const {
    YAML::Node root;
    try {
      root = YAML::Load(text);
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
    if (!unit.IsMap()) fail(unit.Mark(), "a unit is a map with the keys " + list(kLineKeys));
    PlanLine line;
    line.options = defaults_;
    line.line = unit.Mark().line + 1;
    std::vector<std::string> seen;
    for (const auto& entry : unit) {
      const std::string key = scalar(entry.first, "a key");
      if (std::find(kLineKeys.begin(), kLineKeys.end(), key) == kLineKeys.end())
        unknown_key(entry.first, key, kLineKeys);
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
        apply_unit_option(line.options, key, value);
      } catch (const ConfigError& e) {
        fail(entry.second.Mark(), e.what());
      }
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
  const UnitOptions& defaults_;
};

}  // namespace

void apply_unit_option(UnitOptions& options, const std::string& key, const std::string& text) {
  if (key == "strategy") {
    set_strategy(options, text);
  } else if (key == "param_dtype") {
    options.param_dtype = dtype_of(key, text);
  } else if (key == "reduce_dtype") {
    options.reduce_dtype = dtype_of(key, text);
  } else if (key == "output_dtype") {
    set_output_dtype(options, text);
  } else if (key == "reshard_after_forward") {
    set_reshard(options, text);
  } else {
    const std::vector<std::string> keys(kLineKeys.begin() + 1, kLineKeys.end());
    throw ConfigError("'" + key + "' is not an option of a unit; allowed: " + list(keys));
  }
}

WrapPlan parse_wrap_plan(const std::string& yaml_text, const std::string& file_name, const UnitOptions& defaults) {
  return Reader(file_name, defaults).read(yaml_text);
}

}  // namespace fsdp
