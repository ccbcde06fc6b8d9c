#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/advise/compare.h"
#include "harness/sweep/folded.h"
#include "harness/sweep/quantities.h"

namespace harness {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kBaselineVersion = 1;

std::string percent(double x) { return fmt::format("{:+.1f} %", 100 * x); }

std::string difference_text(const FieldDifference& d) { return fmt::format("{}: {} against {}", d.field, d.a, d.b); }

std::string verdict_text(const ComparedCase& c) {
  if (!c.both_measured) return c.note;
  return fmt::format("{:<9} {:>8}  [{}, {}]", name_of(c.effect.verdict), percent(c.effect.effect),
                     percent(c.effect.low), percent(c.effect.high));
}

ordered_json json_of(const std::vector<FieldDifference>& all) {
  ordered_json out = ordered_json::array();
  for (const FieldDifference& d : all) out.push_back({{"field", d.field}, {"a", d.a}, {"b", d.b}});
  return out;
}

ordered_json json_of(const ComparedCase& c, const Side& a, const Side& b) {
  const CaseRecord &x = a.cases[c.a], &y = b.cases[c.b];
  ordered_json j = {{"label", c.label}, {"case_a", x.id}, {"case_b", y.id}};
  j["status_a"] = name_of(x.status);
  j["status_b"] = name_of(y.status);
  const auto number = [](const auto& v) { return v ? ordered_json(*v) : ordered_json(nullptr); };
  j["step_ns_a"] = number(x.step_ns);
  j["step_ns_b"] = number(y.step_ns);
  j["peak_bytes_a"] = number(x.peak_bytes);
  j["peak_bytes_b"] = number(y.peak_bytes);
  if (c.both_measured) {
    j["verdict"] = name_of(c.effect.verdict);
    j["effect"] = c.effect.effect;
    j["effect_low"] = c.effect.low;
    j["effect_high"] = c.effect.high;
    j["coverage"] = c.effect.coverage;
    j["margin"] = c.effect.margin;
    j["interleaved"] = c.effect.interleaved;
    j["samples_a"] = x.samples.size();
    j["samples_b"] = y.samples.size();
  } else {
    j["verdict"] = nullptr;
    j["note"] = c.note;
  }
  if (c.numeric)
    j["numbers"] = {{"what", c.numeric->what},
                    {"step", c.numeric->step},
                    {"a", c.numeric->a},
                    {"b", c.numeric->b},
                    {"relative", c.numeric->relative}};
  j["gate_failed"] = c.gate_failed;
  j["gate_undecided"] = c.gate_undecided;
  return j;
}

constexpr std::size_t kColumns = 100, kNamed = 3;

std::string counts_text(const Comparison& c) {
  std::map<std::string, int> counts;
  for (const ComparedCase& one : c.cases)
    if (one.both_measured) ++counts[std::string(name_of(one.effect.verdict))];
  std::string out;
  for (const auto& [name, n] : counts) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, name);
  return out.empty() ? "no case was measured on both sides" : out;
}

std::string times_text(const ComparedCase& one, const CaseRecord& x, const CaseRecord& y) {
  std::string s = verdict_text(one);
  s += fmt::format("  {} -> {}", format_nanos(x.step_ns.value_or(0)), format_nanos(y.step_ns.value_or(0)));
  if (x.peak_bytes && y.peak_bytes && *x.peak_bytes != *y.peak_bytes)
    s += fmt::format(", peak {} -> {}", format_bytes(*x.peak_bytes), format_bytes(*y.peak_bytes));
  if (!one.effect.interleaved) s += ", not interleaved";
  return s + (one.numeric ? ", NUMBERS DIFFER" : "");
}

}  // namespace

std::string numeric_text(const NumericDifference& d) {
  const std::string how =
      std::isfinite(d.relative) ? fmt::format("by {:.2g} %", 100 * d.relative) : "in being a number";
  return fmt::format("{} differs {} at step {}: {:.6g} against {:.6g}", d.what, how, d.step, d.a, d.b);
}

std::string numerics_text(const Comparison& c) {
  const ComparedCase* worst = nullptr;
  for (const ComparedCase& one : c.cases)
    if (one.numeric && (worst == nullptr || one.numeric->relative > worst->numeric->relative)) worst = &one;
  if (worst == nullptr || c.numerics_differ == 0) return "";
  return fmt::format(
      "NUMBERS DIFFER in {} of {} cases, so the two sides did not compute the same and times say nothing: {}: {}",
      c.numerics_differ, c.cases.size(), worst->label, numeric_text(*worst->numeric));
}

std::vector<std::string> status_texts(const Comparison& c, const Side& a, const Side& b) {
  enum Kind { kLost, kRescued, kNeither };
  static constexpr std::array<std::string_view, 3> kWords = {
      "lost, measured in A and not in B", "rescued, measured in B and not in A", "measured in neither"};
  struct Group {
    std::size_t n = 0;
    std::map<std::string, int> changes;
    std::string names;
  };
  std::array<Group, 3> groups;
  for (const ComparedCase& one : c.cases) {
    if (one.both_measured) continue;
    const Status x = a.cases[one.a].status, y = b.cases[one.b].status;
    Group& g = groups[measured(x) && !measured(y) ? kLost : measured(y) && !measured(x) ? kRescued : kNeither];
    ++g.changes[fmt::format("{} -> {}", name_of(x), name_of(y))];
    if (++g.n <= kNamed) g.names += (g.names.empty() ? "" : "; ") + one.label;
  }
  std::vector<std::string> out;
  for (std::size_t k = 0; k < groups.size(); ++k) {
    if (groups[k].n == 0) continue;
    std::string changes;
    for (const auto& [change, n] : groups[k].changes)
      changes += fmt::format("{}{} {}", changes.empty() ? "" : ", ", n, change);
    out.push_back(fmt::format("{} case{} {} ({}): {}{}", groups[k].n, groups[k].n == 1 ? "" : "s", kWords[k], changes,
                              groups[k].names, groups[k].n > kNamed ? "; ..." : ""));
  }
  return out;
}

std::string gate_text(const Comparison& c) {
  if (c.gate_undecided == 0) return c.gate_failed ? "failed" : "passed";
  const bool one = c.gate_undecided == 1;
  return fmt::format("{}not decided: {} case{} slower by more than that {} fewer than six pairs or samples; give {}",
                     c.gate_failed ? "failed, and " : "", c.gate_undecided, one ? "" : "s", one ? "has" : "have",
                     "repeat: {min: 6} or more, and the time that takes");
}

std::string comparison_text(const Comparison& c, const Side& a, const Side& b, const CompareOptions& options) {
  if (!c.unlike.empty()) {
    std::string s = fmt::format("cannot compare {} and {}: they differ in what must be equal\n", a.name, b.name);
    for (const FieldDifference& d : c.unlike) s += "  " + difference_text(d) + "\n";
    return s + "  (settings that are meant to differ: --allow NAME; nothing is computed)\n";
  }
  std::string s = fmt::format("{} -> {}: change of the step time with its interval\n", a.name, b.name);
  if (const std::string numbers = numerics_text(c); !numbers.empty()) s += "  " + numbers + "\n";
  for (const std::string& status : status_texts(c, a, b)) s += "  " + status + "\n";
  std::size_t widest = 0;
  for (const ComparedCase& one : c.cases)
    if (one.both_measured || one.gate_failed) widest = std::max(widest, one.label.size());
  for (const ComparedCase& one : c.cases) {
    if (!one.both_measured && !one.gate_failed) continue;  // counted above
    const std::string times = one.both_measured ? times_text(one, a.cases[one.a], b.cases[one.b]) : one.note;
    const char* gate = one.gate_failed ? "  GATE FAILED" : one.gate_undecided ? "  GATE NOT DECIDED" : "";
    const std::string line = fmt::format("  {:<{}}  {}{}", one.label, widest, times, gate);
    s += (line.size() <= kColumns ? line : fmt::format("  {}\n      {}{}", one.label, times, gate)) + "\n";
  }
  s += "  " + counts_text(c) + "\n";
  for (const std::string& l : c.only_a) s += "  only in " + a.name + ": " + l + "\n";
  for (const std::string& l : c.only_b) s += "  only in " + b.name + ": " + l + "\n";
  for (const FieldDifference& d : c.warnings) s += "  warning: " + difference_text(d) + "\n";
  for (const std::string& n : c.notes) s += "  note: " + n + "\n";
  if (options.gate >= 0) s += fmt::format("  gate of {:.1f} %: {}\n", 100 * options.gate, gate_text(c));
  return folded(s, kColumns);
}

std::string comparison_json(const Comparison& c, const Side& a, const Side& b, const CompareOptions& options) {
  ordered_json j = {{"a", a.name}, {"b", b.name}};
  j["comparability"] = !c.unlike.empty()    ? "incomparable"
                       : c.warnings.empty() ? "comparable"
                                            : "comparable_with_warning";
  j["unlike"] = json_of(c.unlike);
  j["warnings"] = json_of(c.warnings);
  j["numerics_differ"] = c.numerics_differ;
  j["status_changes"] = status_texts(c, a, b);
  j["cases"] = ordered_json::array();
  for (const ComparedCase& one : c.cases) j["cases"].push_back(json_of(one, a, b));
  j["only_a"] = c.only_a;
  j["only_b"] = c.only_b;
  j["notes"] = c.notes;
  j["gate"] = options.gate >= 0 ? ordered_json(options.gate) : ordered_json(nullptr);
  j["gate_failed"] = c.gate_failed;
  j["gate_undecided"] = c.gate_undecided;
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string baseline_json(const Side& side) {
  ordered_json cases = ordered_json::array();
  for (const CaseRecord& c : side.cases) {
    const auto pairs = [](const auto& from) {
      ordered_json out = ordered_json::object();
      for (const auto& [name, value] : from) out[name] = value;
      return out;
    };
    cases.push_back({{"id", c.id},
                     {"status", name_of(c.status)},
                     {"reason", c.reason},
                     {"axes", pairs(c.axes)},
                     {"settings", pairs(c.settings)},
                     {"environment", pairs(c.environment)},
                     {"warnings", c.warnings},
                     {"emulated", c.emulated},
                     {"predicted", c.predicted},
                     {"step_ns", c.step_ns ? ordered_json(*c.step_ns) : ordered_json(nullptr)},
                     {"peak_bytes", c.peak_bytes ? ordered_json(*c.peak_bytes) : ordered_json(nullptr)},
                     {"losses", c.losses},
                     {"grad_norms", c.grad_norms},
                     {"samples_ns", c.samples}});
  }
  ordered_json environment = ordered_json::object();
  for (const auto& [name, value] : side.sweep.environment) environment[name] = value;
  return ordered_json{{"shardscope_baseline", kBaselineVersion},
                      {"schema_version", side.sweep.schema_version},
                      {"name", side.sweep.name},
                      {"created_at", side.sweep.created_at},
                      {"environment", environment},
                      {"cases", cases}}
             .dump(1, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

bool is_baseline(const std::string& text) {
  return text.substr(0, 200).find("\"shardscope_baseline\"") != std::string::npos;
}

Side baseline_from_json(const std::string& text, const std::string& file) {
  try {
    const ordered_json j = ordered_json::parse(text);
    if (j.at("shardscope_baseline").get<int>() > kBaselineVersion)
      throw fsdp::ConfigError(
          fmt::format("[{}] was written by a newer shardscope; use that one, or write it again", file));
    Side side;
    side.name = file;
    side.sweep.name = j.at("name");
    side.sweep.schema_version = j.at("schema_version");
    side.sweep.created_at = j.at("created_at");
    for (const auto& [name, value] : j.at("environment").items()) side.sweep.environment[name] = value;
    for (const auto& c : j.at("cases")) {
      CaseRecord r;
      r.id = c.at("id");
      const auto status = status_from(c.at("status").get<std::string>());
      if (!status)
        throw fsdp::ConfigError(
            fmt::format("[{}] holds the unknown status {}; write the baseline again", file, c.at("status").dump()));
      r.status = *status;
      r.reason = c.at("reason");
      for (const auto& [name, value] : c.at("axes").items()) r.axes.emplace_back(name, value);
      for (const auto& [name, value] : c.at("settings").items()) r.settings.emplace_back(name, value);
      for (const auto& [name, value] : c.at("environment").items()) r.environment[name] = value;
      r.warnings = c.at("warnings").get<std::vector<std::string>>();
      r.emulated = c.at("emulated");
      r.predicted = c.at("predicted");
      if (!c.at("step_ns").is_null()) r.step_ns = c.at("step_ns").get<fsdp::Nanos>();
      if (!c.at("peak_bytes").is_null()) r.peak_bytes = c.at("peak_bytes").get<fsdp::Bytes>();
      r.samples = c.at("samples_ns").get<std::vector<fsdp::Nanos>>();
      // Absent in older files; null: not a number.
      for (const auto& [key, to] : {std::pair{"losses", &r.losses}, std::pair{"grad_norms", &r.grad_norms}})
        for (const auto& v : c.value(key, ordered_json::array()))
          to->push_back(v.is_null() ? std::nan("") : v.get<double>());
      side.cases.push_back(std::move(r));
    }
    return side;
  } catch (const json::exception& e) {
    throw fsdp::ConfigError(
        fmt::format("[{}] is not a baseline: {}; write one with compare A --write-baseline FILE", file, e.what()));
  }
}

}  // namespace harness
