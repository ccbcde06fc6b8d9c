#include "reports/shape.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "harness/sweep/settings.h"
#include "harness/sweep/text.h"
#include "reports/text.h"

namespace reports {
namespace {

// Settings that differ between cases and are no axis of the sweep.
std::vector<std::string> hidden_axes(const ReportInput& input) {
  std::set<std::string> known;
  for (const auto& axis : input.sweep.axes) known.insert(axis.first);
  std::vector<std::string> order;
  std::map<std::string, std::set<std::string>> seen;
  for (const auto& c : input.cases) {
    for (const auto* list : {&c.axes, &c.settings}) {
      for (const auto& [name, value] : *list) {
        if (known.count(name)) continue;
        if (!seen.count(name)) order.push_back(name);
        seen[name].insert(value);
      }
    }
  }
  std::erase_if(order, [&](const std::string& name) { return seen[name].size() < 2; });
  return order;
}

std::optional<double> number_from(const std::string& text) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

// Numbers that the spec did not order stand in numeric order.
void sort_numbers(std::vector<std::string>& values) {
  if (!std::all_of(values.begin(), values.end(), [](const std::string& v) { return number_from(v).has_value(); }))
    return;
  std::stable_sort(values.begin(), values.end(),
                   [](const std::string& a, const std::string& b) { return *number_from(a) < *number_from(b); });
}

Axis make_axis(const ReportInput& input, const std::string& name, std::vector<std::string> declared) {
  Axis axis{name, std::move(declared), {}, harness::has_role(name, harness::Role::kWork)};
  const bool ordered = !axis.values.empty();
  for (const auto& c : input.cases) {
    const std::string* value = setting(c, name);
    const std::string text = value ? *value : std::string();
    if (std::find(axis.values.begin(), axis.values.end(), text) == axis.values.end()) axis.values.push_back(text);
  }
  if (!ordered) sort_numbers(axis.values);
  return axis;
}

int index_in(const std::vector<std::string>& values, const std::string* value) {
  const std::string text = value ? *value : std::string();
  return static_cast<int>(std::find(values.begin(), values.end(), text) - values.begin());
}

void order_by_units(const ReportInput& input, Axis& axis) {
  std::vector<std::int64_t> units(axis.values.size(), -1);
  for (const auto& c : input.cases) {
    auto& known = units[static_cast<std::size_t>(index_in(axis.values, setting(c, axis.name)))];
    if (c.units && known < 0) known = *c.units;
  }
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (std::find(units.begin(), units.end(), -1) == units.end()) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return units[a] < units[b]; });
  }
  std::vector<std::string> values;
  for (const std::size_t i : order) {
    values.push_back(axis.values[i]);
    axis.units.push_back(units[i]);
  }
  axis.values = std::move(values);
}

std::string workload_label(const SweepShape& shape, const std::vector<int>& at) {
  std::string label;
  for (std::size_t a = 0; a < shape.axes.size(); ++a) {
    const Axis& axis = shape.axes[a];
    if (!axis.workload || axis.values.size() < 2) continue;
    label += (label.empty() ? "" : ", ") + axis.name + " " + value_label(axis, static_cast<std::size_t>(at[a]));
  }
  return label;
}

std::vector<Workload> workloads_of(const SweepShape& shape) {
  std::vector<std::size_t> order(shape.at.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return shape.at[a] < shape.at[b]; });
  std::vector<Workload> workloads;
  std::map<std::string, std::size_t> known;
  for (const std::size_t i : order) {
    const std::string label = workload_label(shape, shape.at[i]);
    const auto [place, fresh] = known.emplace(label, workloads.size());
    if (fresh) workloads.push_back({label, {}});
    workloads[place->second].cases.push_back(i);
  }
  return workloads;
}

}  // namespace

SweepShape shape_of(const ReportInput& input) {
  SweepShape shape;
  for (const auto& [name, values] : input.sweep.axes) shape.axes.push_back(make_axis(input, name, values));
  for (const auto& name : hidden_axes(input)) shape.axes.push_back(make_axis(input, name, {}));
  for (std::size_t a = 0; a < shape.axes.size(); ++a) {
    if (shape.axes[a].name != "wrap") continue;
    order_by_units(input, shape.axes[a]);
    if (shape.axes[a].values.size() > 1) shape.granularity = static_cast<int>(a);
  }
  for (const auto& c : input.cases) {
    std::vector<int>& at = shape.at.emplace_back();
    for (const Axis& axis : shape.axes) at.push_back(index_in(axis.values, setting(c, axis.name)));
  }
  shape.workloads = workloads_of(shape);
  return shape;
}

std::vector<Line> lines_along(const SweepShape& shape, const Workload& workload, std::size_t axis) {
  std::map<std::vector<int>, Line> lines;
  for (const std::size_t i : workload.cases) {
    std::vector<int> others = shape.at[i];
    others[axis] = 0;
    lines[others].push_back(i);
  }
  std::vector<Line> result;
  for (auto& [key, line] : lines) {
    std::stable_sort(line.begin(), line.end(),
                     [&](std::size_t a, std::size_t b) { return shape.at[a][axis] < shape.at[b][axis]; });
    result.push_back(std::move(line));
  }
  return result;
}

std::string value_label(const Axis& axis, std::size_t value) {
  const std::string label = harness::readable_value(axis.name, axis.values[value]);
  const auto same = std::count_if(axis.values.begin(), axis.values.end(), [&](const std::string& other) {
    return harness::readable_value(axis.name, other) == label;
  });
  return same > 1 ? axis.values[value] : label;
}

std::string words_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string point_label(const SweepShape& shape, std::size_t case_index) {
  std::string label;
  for (std::size_t a = 0; a < shape.axes.size(); ++a) {
    const Axis& axis = shape.axes[a];
    if (axis.workload || axis.values.size() < 2) continue;
    const std::string value = value_label(axis, static_cast<std::size_t>(shape.at[case_index][a]));
    const bool bare = axis.name == "wrap" || axis.name == "strategy";
    if (!label.empty()) label += ", ";
    if (!bare) label += words_of(axis.name) + " ";
    label += value.empty() ? "(none)" : value;
  }
  return label.empty() ? "the only setting" : label;
}

}  // namespace reports
