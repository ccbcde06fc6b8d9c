#include "fsdp/plan/unit_options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"

namespace fsdp {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& allowed) {
  throw ConfigError("'" + text + "' is not one of the values; allowed: " + allowed);
}

// A whole number of at least 1, or 0 for anything else.
int positive(std::string_view text) {
  int n = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), n);
  return !text.empty() && r.ec == std::errc{} && r.ptr == text.data() + text.size() && n >= 1 ? n : 0;
}

bool is_hybrid(Strategy s) { return s == Strategy::kHybridShard || s == Strategy::kHybridShardZero2; }

void set_strategy(UnitOptions& o, const std::string& text) {
  const auto colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const int group = colon == std::string::npos ? 0 : positive(std::string_view(text).substr(colon + 1));
  for (Strategy s : {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kNoShard, Strategy::kHybridShard,
                     Strategy::kHybridShardZero2}) {
    if (name != name_of(s) || is_hybrid(s) != (group > 0) || is_hybrid(s) != (colon != std::string::npos)) continue;
    o.strategy = s;
    o.group = group;
    return;
  }
  refuse(
      text,
      "full_shard, shard_grad_op, no_shard, hybrid_shard:GROUP, hybrid_shard_zero2:GROUP (GROUP: ranks that share one "
      "copy)");
}

std::string strategy_text(const UnitOptions& o) {
  const std::string name(name_of(o.strategy));
  return is_hybrid(o.strategy) ? name + ":" + std::to_string(o.group) : name;
}

Dtype dtype_of(const std::string& text, const char* allowed) {
  for (Dtype d : {Dtype::kFloat32, Dtype::kBFloat16}) {
    if (text == name_of(d)) return d;
  }
  refuse(text, allowed);
}

void set_output_dtype(UnitOptions& o, const std::string& text) {
  o.output_dtype = text == "auto" ? std::nullopt : std::optional(dtype_of(text, "auto, fp32, bf16"));
}

void set_reshard(UnitOptions& o, const std::string& given) {
  std::string text = given;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  const int group = positive(text);
  if (text == "auto") {
    o.reshard_after_forward.reset();
  } else if (text == "true" || text == "false") {
    o.reshard_after_forward = text == "true";
  } else if (group > 0) {
    o.reshard_after_forward = group > 1;  // a copy over one rank is the whole: kept, and reshard_group 1 says so
  } else {
    refuse(given, "auto, true, false, or the ranks of a smaller group");
  }
  o.reshard_group = group;
}

std::string reshard_text(const UnitOptions& o) {
  if (o.reshard_group > 0) return std::to_string(o.reshard_group);
  return !o.reshard_after_forward ? "auto" : *o.reshard_after_forward ? "true" : "false";
}

}  // namespace

const std::vector<UnitOptionRow>& unit_option_table() {
  using O = UnitOptions;
  static const std::vector<UnitOptionRow> kTable = {
      {"strategy", "full_shard, shard_grad_op, no_shard, hybrid_shard:GROUP, hybrid_shard_zero2:GROUP", set_strategy,
       strategy_text, [](O& to, const O& from) { to.strategy = from.strategy, to.group = from.group; }},
      {"param_dtype", "fp32, bf16", [](O& o, const std::string& t) { o.param_dtype = dtype_of(t, "fp32, bf16"); },
       [](const O& o) { return std::string(name_of(o.param_dtype)); },
       [](O& to, const O& from) { to.param_dtype = from.param_dtype; }},
      {"reduce_dtype", "fp32, bf16", [](O& o, const std::string& t) { o.reduce_dtype = dtype_of(t, "fp32, bf16"); },
       [](const O& o) { return std::string(name_of(o.reduce_dtype)); },
       [](O& to, const O& from) { to.reduce_dtype = from.reduce_dtype; }},
      {"output_dtype", "auto, fp32, bf16", set_output_dtype,
       [](const O& o) { return o.output_dtype ? std::string(name_of(*o.output_dtype)) : "auto"; },
       [](O& to, const O& from) { to.output_dtype = from.output_dtype; }},
      {"reshard_after_forward", "auto, true, false, GROUP", set_reshard, reshard_text,
       [](O& to, const O& from) {
         to.reshard_after_forward = from.reshard_after_forward, to.reshard_group = from.reshard_group;
       }},
  };
  return kTable;
}

const UnitOptionRow& unit_option(const std::string& name) {
  const auto& table = unit_option_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const UnitOptionRow& row) { return name == row.name; });
  if (found != table.end()) return *found;
  std::vector<std::string> names;
  for (const UnitOptionRow& row : table) names.emplace_back(row.name);
  throw ConfigError("'" + name + "' is not an option of a unit; nearest: " + nearest_names(name, names));
}

}  // namespace fsdp
