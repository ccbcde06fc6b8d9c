#include "harness/advise/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "fsdp/core/errors.h"
#include "harness/analysis/statistics.h"
#include "harness/sweep/settings.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

constexpr double kLeastNumber = 1e-6;       // losses and norms below are zero
constexpr std::size_t kMostPairs = 40'000;  // tried for the likest one when nothing matches

// Fields of the environment that must be equal; the rest should be, but for those that only inform.
bool required_field(const std::string& name) {
  static constexpr std::array<std::string_view, 6> kRequired = {"cpu",       "cores",        "gpu",
                                                                "gpu_count", "device_model", "nodes"};
  return std::find(kRequired.begin(), kRequired.end(), name) != kRequired.end();
}
bool informational_field(const std::string& name) {
  static constexpr std::array<std::string_view, 10> kInformational = {
      "host", "hosts", "command", "boundary", "directory", "pid", "memory_bytes", "temperature", "load", "started"};
  return std::any_of(kInformational.begin(), kInformational.end(),
                     [&](std::string_view i) { return name == i || name.rfind(std::string(i) + "_", 0) == 0; }) ||
         name.rfind("machine.", 0) == 0;
}

using Fields = std::map<std::string, std::string>;

std::vector<FieldDifference> differences(const Fields& a, const Fields& b) {
  std::vector<FieldDifference> out;
  const auto value = [](const Fields& f, const std::string& name) {
    const auto found = f.find(name);
    return found == f.end() ? std::string("absent") : found->second;
  };
  Fields all = a;
  all.insert(b.begin(), b.end());
  for (const auto& [name, ignored] : all)
    if (value(a, name) != value(b, name)) out.push_back({name, value(a, name), value(b, name)});
  return out;
}

Fields setting_fields(const CaseRecord& c, const std::set<std::string>& allow) {
  Fields out;
  for (const auto& [name, value] : with_defaults(c.settings))
    if (!allow.count(name) && !has_role(name, Role::kGuard)) out[name] = value;
  return out;
}

// What must be equal beside the settings.
Fields required_fields(const Side& side, const CaseRecord& c, const std::set<std::string>& allow) {
  Fields all = {{"schema_version", std::to_string(side.sweep.schema_version)},
                {"emulated", c.emulated ? "true" : "false"},
                {"predicted", c.predicted ? "true" : "false"}};
  for (const auto* e : {&side.sweep.environment, &c.environment})
    for (const auto& [name, value] : *e)
      if (required_field(name)) all[name] = value;
  for (const std::string& name : allow) all.erase(name);
  return all;
}

Fields expected_fields(const Side& side, const CaseRecord& c, const std::set<std::string>& allow) {
  Fields all = {{"interleaved", "no"}};
  for (const auto* e : {&side.sweep.environment, &c.environment})
    for (const auto& [name, value] : *e)
      if (!required_field(name) && !informational_field(name)) all[name] = value;
  if (all["interleaved"] != "no") all["interleaved"] = "yes";
  const bool throttled = std::any_of(c.warnings.begin(), c.warnings.end(),
                                     [](const std::string& w) { return w.find("throttl") != std::string::npos; });
  all["throttled"] = throttled ? "yes" : "no";
  for (const std::string& name : allow) all.erase(name);
  return all;
}

std::string key_of(const CaseRecord& c, const std::set<std::string>& allow) {
  std::string key;
  for (const auto& [name, value] : setting_fields(c, allow)) key += name + "=" + value + "\n";
  return key;
}

std::string label_of(const CaseRecord& c, const std::set<std::string>& allow) {
  auto axes = c.axes;
  std::erase_if(axes, [&](const auto& axis) { return allow.contains(axis.first); });
  return axes_text(axes, c.id);
}

// The pair of cases with the fewest differing fields: what stands between the sides.
std::vector<FieldDifference> likest_difference(const Side& a, const Side& b, const std::set<std::string>& allow) {
  std::optional<std::vector<FieldDifference>> best;
  std::size_t tried = 0;
  for (const CaseRecord& x : a.cases)
    for (const CaseRecord& y : b.cases) {
      if (++tried > kMostPairs) return best.value_or(std::vector<FieldDifference>());
      auto d = differences(setting_fields(x, allow), setting_fields(y, allow));
      if (!best || d.size() < best->size()) best = std::move(d);
    }
  return best.value_or(
      std::vector<FieldDifference>{{"cases", std::to_string(a.cases.size()), std::to_string(b.cases.size())}});
}

std::map<std::string, std::size_t> by_key(const Side& side, const std::set<std::string>& allow) {
  std::map<std::string, std::size_t> out;
  for (std::size_t i = 0; i < side.cases.size(); ++i) {
    const auto [found, fresh] = out.emplace(key_of(side.cases[i], allow), i);
    if (fresh) continue;
    const auto d = differences(setting_fields(side.cases[found->second], {}), setting_fields(side.cases[i], {}));
    throw fsdp::ConfigError(
        fmt::format("[{}] holds several cases that differ only in {}, which may differ here; select one of them, for "
                    "instance {}:{}={}",
                    side.name, d.empty() ? "nothing" : d.front().field, side.name,
                    d.empty() ? "setting" : d.front().field, d.empty() ? "value" : d.front().a));
  }
  return out;
}

// `one_sweep`: rounds of the two may have been taken in turns.
Effect effect_of(const CaseRecord& x, const CaseRecord& y, bool one_sweep, double noise) {
  if (x.predicted && y.predicted) return predicted_effect(summarize(x.samples).median, summarize(y.samples).median);
  const bool turns = one_sweep && x.environment.count("interleaved") && y.environment.count("interleaved");
  return turns ? paired_effect(x.samples, y.samples, noise) : unpaired_effect(x.samples, y.samples, noise);
}

void measure(ComparedCase& out, const Side& a, const Side& b, const CompareOptions& options) {
  const CaseRecord &x = a.cases[out.a], &y = b.cases[out.b];
  out.both_measured = measured(x.status) && measured(y.status) && !x.samples.empty() && !y.samples.empty();
  if (!out.both_measured) {
    out.note = x.status == y.status ? fmt::format("both {}", name_of(x.status))
                                    : fmt::format("{} against {}", name_of(x.status), name_of(y.status));
    return;
  }
  out.effect = effect_of(x, y, !a.origin.empty() && a.origin == b.origin, options.noise);
  out.gate_failed = options.gate >= 0 && gate_fails(out.effect, options.gate);
  out.gate_undecided = options.gate >= 0 && gate_undecided(out.effect, options.gate);
}

void collect_warnings(Comparison& c, const ComparedCase& one) {
  for (const FieldDifference& w : one.warnings) {
    const auto same = [&](const FieldDifference& o) { return o.field == w.field && o.a == w.a && o.b == w.b; };
    if (std::none_of(c.warnings.begin(), c.warnings.end(), same)) c.warnings.push_back(w);
  }
}

// Settings that define what is computed, beside rounding.
bool defines_numbers(const std::string& name) {
  static constexpr std::array<std::string_view, 25> kDefine = {"model",        "set",          "world",
                                                               "batch",        "seq",          "accumulate",
                                                               "param_dtype",  "reduce_dtype", "output_dtype",
                                                               "buffer_dtype", "master_dtype", "gather_dtype",
                                                               "optimizer",    "clip",         "seed",
                                                               "loss",         "reduce_op",    "stochastic_rounding",
                                                               "ignore",       "attention",    "matmul_precision",
                                                               "compile",      "runtime",      "losses",
                                                               "device"};
  return std::find(kDefine.begin(), kDefine.end(), name) != kDefine.end();
}

// Both computed in types of more than 16 bits.
bool computed_wide(const CaseRecord& c) {
  return std::none_of(c.settings.begin(), c.settings.end(), [](const auto& s) {
    const auto& [name, value] = s;
    if (!name.ends_with("_dtype") || name == "buffer_dtype" || name == "output_dtype") return false;
    return value.find("16") != std::string::npos || value.find("fp8") != std::string::npos;
  });
}

void compare_numbers(Comparison& out, ComparedCase& one, const Side& a, const Side& b, const CompareOptions& options) {
  one.numeric = numeric_difference(a.cases[one.a], b.cases[one.b]);
  if (!one.numeric) return;
  const auto meant = std::find_if(options.allow.begin(), options.allow.end(), defines_numbers);
  if (meant == options.allow.end())
    ++out.numerics_differ;
  else
    out.numbers_meant = *meant;
}

// A case that was measured on one side only is worse news than any percentage.
bool lost(const Side& a, const Side& b, const ComparedCase& one) {
  return measured(a.cases[one.a].status) && !measured(b.cases[one.b].status);
}

// Of many verdicts some are wrong: how many, at most, among the cases that can have a sure one.
void note_chance(Comparison& c) {
  std::size_t judged = 0;
  double by_chance = 0;
  for (const ComparedCase& one : c.cases) {
    if (!one.both_measured || !can_be_sure(one.effect)) continue;
    ++judged;
    by_chance += 1 - one.effect.coverage;
  }
  if (judged > 20 && by_chance > 0)
    c.notes.push_back(fmt::format("{} cases: {:.0f} of them, at most, are expected to look different by chance", judged,
                                  std::ceil(by_chance)));
}

}  // namespace

Comparison compare(const Side& a, const Side& b, const CompareOptions& options) {
  Comparison out;
  const auto left = by_key(a, options.allow), right = by_key(b, options.allow);
  for (const auto& [key, i] : left)
    if (!right.count(key)) out.only_a.push_back(label_of(a.cases[i], options.allow));
  for (const auto& [key, i] : right)
    if (!left.count(key)) out.only_b.push_back(label_of(b.cases[i], options.allow));
  for (std::size_t i = 0; i < a.cases.size(); ++i) {
    const auto partner = right.find(key_of(a.cases[i], options.allow));
    if (partner == right.end()) continue;
    ComparedCase one;
    one.a = i, one.b = partner->second;
    one.label = label_of(a.cases[i], options.allow);
    const CaseRecord &x = a.cases[one.a], &y = b.cases[one.b];
    out.unlike = differences(required_fields(a, x, options.allow), required_fields(b, y, options.allow));
    if (!out.unlike.empty()) {
      out.cases.clear();
      return out;
    }
    one.warnings = differences(expected_fields(a, x, options.allow), expected_fields(b, y, options.allow));
    measure(one, a, b, options);
    if (one.both_measured) compare_numbers(out, one, a, b, options);
    if (options.gate >= 0 && lost(a, b, one)) one.gate_failed = true;
    collect_warnings(out, one);
    out.gate_failed = out.gate_failed || one.gate_failed;
    out.gate_undecided += one.gate_undecided ? 1 : 0;
    out.cases.push_back(std::move(one));
  }
  if (out.cases.empty()) out.unlike = likest_difference(a, b, options.allow);
  if (!out.numbers_meant.empty())
    out.notes.push_back("losses differ, as they may where " + out.numbers_meant + " does");
  note_chance(out);
  return out;
}

namespace {

void take_worst(const std::string& what, const std::vector<double>& a, const std::vector<double>& b, double limit,
                std::optional<NumericDifference>& worst) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const bool finite = std::isfinite(a[i]) && std::isfinite(b[i]);
    const double larger = std::max(std::abs(a[i]), std::abs(b[i]));
    if (!finite && std::isnan(a[i]) == std::isnan(b[i]) && (std::isnan(a[i]) || a[i] == b[i])) continue;
    const double relative = !finite                 ? std::numeric_limits<double>::infinity()
                            : larger > kLeastNumber ? std::abs(a[i] - b[i]) / larger
                                                    : 0;
    if (relative > limit && (!worst || relative > worst->relative)) worst = {what, i, a[i], b[i], relative};
  }
}

}  // namespace

std::optional<NumericDifference> numeric_difference(const CaseRecord& a, const CaseRecord& b) {
  const bool wide = computed_wide(a) && computed_wide(b);
  std::optional<NumericDifference> loss, norm;
  take_worst("loss", a.losses, b.losses, wide ? 1e-3 : 3e-2, loss);
  take_worst("gradient norm", a.grad_norms, b.grad_norms, wide ? 1e-2 : 3e-1, norm);
  return loss ? loss : norm;
}

SideName parse_side(const std::string& text, bool exists_as_given) {
  SideName out{text, {}};
  if (exists_as_given) return out;
  // The selection begins at the first colon that a setting's name and a "=" follow: values may hold colons themselves.
  std::string rest, unknown;
  for (auto at = text.find(':'); at != std::string::npos && rest.empty(); at = text.find(':', at + 1)) {
    const auto equals = text.find('=', at);
    if (equals == std::string::npos) break;
    const std::string name = text.substr(at + 1, equals - at - 1);
    const auto& table = setting_table();
    if (std::none_of(table.begin(), table.end(), [&](const SettingRow& s) { return s.name == name; })) {
      if (unknown.empty() && name.find('/') == std::string::npos) unknown = name;
      continue;
    }
    out.path = text.substr(0, at);
    rest = text.substr(at + 1);
  }
  CaseSettings defaults;
  if (rest.empty()) {
    if (!unknown.empty()) apply_setting(defaults, unknown, "");  // throws, with the nearest names
    return out;
  }
  for (const std::string& piece : split(rest, ',')) {
    const auto equals = piece.find('=');
    if (equals == std::string::npos) {  // a comma inside a value
      if (out.selected.empty())
        throw fsdp::ConfigError(
            fmt::format("[{}] \"{}\" is not setting=value; write for instance DIR:wrap=block", text, piece));
      out.selected.back().second += "," + piece;
      continue;
    }
    out.selected.emplace_back(piece.substr(0, equals), piece.substr(equals + 1));
  }
  for (auto& [name, value] : out.selected) {
    const SettingRow& row = setting_row(name);
    if (row.file && !row.file(value).empty()) continue;  // as it stands: the file may be gone
    apply_setting(defaults, name, value);
    value = setting_text(defaults, name);
  }
  return out;
}

void select_cases(Side& side, const SideName& name) {
  for (const auto& [setting, value] : name.selected) {
    const auto other = [&setting = setting, &value = value](const CaseRecord& c) {
      return std::none_of(c.settings.begin(), c.settings.end(),
                          [&](const auto& s) { return s.first == setting && s.second == value; });
    };
    side.cases.erase(std::remove_if(side.cases.begin(), side.cases.end(), other), side.cases.end());
    if (side.cases.empty())
      throw fsdp::ConfigError(
          fmt::format("[{}] no case has {}={}; see results.csv for what there is", name.path, setting, value));
  }
}

}  // namespace harness
