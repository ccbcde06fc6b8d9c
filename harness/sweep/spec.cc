#include "harness/sweep/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "fsdp/core/errors.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

bool matches(const CaseSettings& c, const std::string& name, const std::string& value) {
  if (name != "set") return setting_text(c, name) == value;
  const Overrides wanted = parse_overrides(value);
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const auto& w) { return std::find(c.set.begin(), c.set.end(), w) != c.set.end(); });
}

bool excluded(const SweepSpec& spec, const CaseSettings& c) {
  return std::any_of(spec.exclude.begin(), spec.exclude.end(), [&](const SweepSpec::Exclusion& exclusion) {
    return std::all_of(exclusion.begin(), exclusion.end(), [&](const auto& entry) {
      return std::any_of(entry.second.begin(), entry.second.end(),
                         [&](const std::string& value) { return matches(c, entry.first, value); });
    });
  });
}

}  // namespace

void check_case(const CaseSettings& c) {
  validate(c);
  fsdp::make_unit_plan(describe_model(model_of(c)), c.wrap.policy, c.unit);
}

SweepCase make_case(const SweepSpec& spec, const Pairs& axes) {
  SweepCase c;
  c.settings = spec.base;
  c.axes = axes;
  FileTexts files(spec.files);
  for (const auto& [name, value] : axes) apply_axis_value(c.settings, name, value, spec.base.set, files);
  c.id = case_id(c.settings);
  try {
    check_case(c.settings);
  } catch (const fsdp::EnvironmentError& e) {
    c.environment_error = e.what();
  } catch (const fsdp::ConfigError& e) {
    c.config_error = e.what();
  }
  return c;
}

std::vector<SweepCase> expand(const SweepSpec& spec) {
  std::vector<SweepCase> cases;
  std::set<std::string> seen;
  std::vector<std::size_t> at(spec.axes.size(), 0);
  while (true) {
    Pairs axes;
    for (std::size_t a = 0; a < at.size(); ++a) axes.emplace_back(spec.axes[a].first, spec.axes[a].second[at[a]]);
    SweepCase c = make_case(spec, axes);
    if (!excluded(spec, c.settings) && seen.insert(c.id).second) cases.push_back(std::move(c));
    std::size_t a = at.size();
    while (a > 0 && ++at[a - 1] == spec.axes[a - 1].second.size()) at[--a] = 0;
    if (a == 0) return cases;
  }
}

std::vector<SweepCase> all_cases(const SweepSpec& spec) {
  std::vector<SweepCase> points = expand(spec);
  if (!spec.boundary) return points;
  std::vector<SweepCase> out;
  for (const SweepCase& point : points) {
    for (const std::string& value : spec.boundary->values) {
      auto axes = point.axes;
      axes.emplace_back(spec.boundary->setting, value);
      out.push_back(make_case(spec, axes));
    }
  }
  return out;
}

std::vector<std::string> SweepSpec::canonical() const {
  std::vector<std::string> lines;
  for (const auto& [setting, value] : all_settings(base)) lines.push_back(setting + " is " + value);
  for (const auto& [setting, values] : axes)
    lines.push_back(fmt::format("axis {} is [{}]", setting, fmt::join(values, "; ")));
  for (const Exclusion& exclusion : exclude) {
    std::vector<std::string> parts;
    for (const auto& [setting, values] : exclusion)
      parts.push_back(fmt::format("{}: {}", setting, fmt::join(values, "; ")));
    lines.push_back(fmt::format("exclude is {{{}}}", fmt::join(parts, ", ")));
  }
  if (boundary) lines.push_back(boundary->canonical());
  if (interleave)
    lines.push_back(fmt::format("interleave is {} repetitions a round, {}, pin {}", round.repetitions,
                                exact_nanos(round.time), round.pin));
  lines.push_back(fmt::format("repeat min is {}", repeat.min));
  lines.push_back(fmt::format("repeat max is {}", repeat.max));
  lines.push_back(fmt::format("repeat relative_ci is {}%", repeat.relative_ci * 100));
  lines.push_back(fmt::format("repeat time is {}", exact_nanos(repeat.time)));
  lines.push_back(fmt::format("trace is {}", trace ? "one" : "none"));
  lines.push_back(fmt::format("timeout is {}", exact_nanos(timeout)));
  // Settings at their defaults are left out, so that one added later changes no hash.
  for (const SettingRow& row : setting_table()) std::erase(lines, row.name + " is " + row.standard);
  return lines;
}

std::vector<SweepSpec::Axis> SweepSpec::all_axes() const {
  std::vector<Axis> all = axes;
  if (boundary) all.emplace_back(boundary->setting, boundary->values);
  return all;
}

// The ids are in it for the sake of plan and model files, which count by content.
std::string SweepSpec::hash() const {
  std::string all = fmt::format("{}", fmt::join(canonical(), "\n"));
  for (const SweepCase& c : expand(*this)) all += "\n" + c.id;
  return hex(text_hash(all), 16);
}

std::string first_difference(const SweepSpec& there, const SweepSpec& here) {
  const auto facts = [](const SweepSpec& spec) {
    Pairs out;
    for (const auto& [setting, value] : all_settings(spec.base)) out.emplace_back(setting, value);
    for (const std::string& line : spec.canonical()) {
      const auto is = line.find(" is ");
      out.emplace_back(line.substr(0, is), line.substr(is + 4));
    }
    return out;
  };
  const auto value_of = [](const Pairs& pairs, const std::string& name) {
    for (const auto& [key, value] : pairs) {
      if (key == name) return value;
    }
    return std::string("absent");
  };
  const Pairs a = facts(there), b = facts(here);
  for (const Pairs* side : {&a, &b}) {
    for (const auto& [name, ignored] : *side) {
      const std::string old_value = value_of(a, name), new_value = value_of(b, name);
      if (old_value != new_value) return fmt::format("{} is {} there and {} here", name, old_value, new_value);
    }
  }
  return "a file that it names has changed";
}

}  // namespace harness
