#include "harness/advise/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>

#include "harness/advise/quality.h"
#include "harness/analysis/statistics.h"

namespace harness {
namespace {

using Axes = std::vector<std::pair<std::string, std::vector<std::string>>>;

constexpr double kObserverLimit = 1.05;

std::string value_of(const std::vector<std::pair<std::string, std::string>>& pairs, const std::string& name) {
  for (const auto& [key, value] : pairs)
    if (key == name) return value;
  return "";
}

double number_of(const CaseRecord& c, const std::string& name) {
  const double v = std::atof(value_of(c.settings, name).c_str());
  return v > 0 ? v : 1;
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
}

// Axes whose values have no order, or whose order is not of one mechanism: a difference there is a choice, no cliff.
bool ordered(const std::string& axis) {
  static constexpr std::array<const char*, 9> kUnordered = {
      "model", "device", "optimizer", "collectives", "layout", "strategy", "param_dtype", "hardware", "reduce_dtype"};
  return std::find(kUnordered.begin(), kUnordered.end(), axis) == kUnordered.end();
}

Confidence confidence_of(const CaseRecord& a, const CaseRecord& b) {
  const auto weak = [](const CaseRecord& c) { return c.samples.size() < 3 || c.predicted; };
  const auto fair = [](const CaseRecord& c) {
    return c.ci_coverage < 0.95 || judge_samples(c.samples).drifted || !c.partition ||
           c.observer_ratio.value_or(1) > kObserverLimit;
  };
  if (weak(a) || weak(b)) return Confidence::kLow;
  return fair(a) || fair(b) ? Confidence::kMedium : Confidence::kHigh;
}

// Of everything that a class holds in the slow case, the largest row: "most of it all_gather of model.layers.3,
// forward".
std::string largest_detail(const CaseRecord& slow, PartitionClass cls) {
  const PartitionDetail* largest = nullptr;
  fsdp::Nanos total = 0;
  for (const PartitionDetail& d : slow.partition_details) {
    if (d.cls != cls) continue;
    total += d.ns;
    if (!largest || d.ns > largest->ns) largest = &d;
  }
  if (!largest || total == 0) return "";
  std::string s;
  const bool exposed = cls >= PartitionClass::kExposedAllGatherForward && cls <= PartitionClass::kExposedOther;
  if (exposed) s += std::string(fsdp::name_of(largest->collective)) + " of ";
  const auto unit = static_cast<std::size_t>(largest->unit);
  s += largest->unit >= 0 && unit < slow.unit_table.size() ? slow.unit_table[unit].name : "no unit";
  s += fmt::format(", {}", fsdp::name_of(largest->pass));
  return fmt::format("; the largest part, {:.0f} %, is {}",
                     100 * static_cast<double>(largest->ns) / static_cast<double>(total), s);
}

void add_cliffs(const CaseLine& line, std::vector<Finding>& out) {
  std::vector<CurvePoint> curve;
  for (const CaseRecord* c : line.cases) curve.push_back(curve_point(*c, line.axis));
  for (const Cliff& cliff : find_cliffs(curve)) {
    const CaseRecord &fast = *line.cases[cliff.fast], &slow = *line.cases[cliff.slow];
    Finding f{Finding::Kind::kCliff, describe(cliff, curve, work_unit(line.axis)), line.axis, line.where, {}, {}};
    f.cases = {fast.id, slow.id};
    f.numbers = {{"ratio", cliff.ratio}, {"fast_ns", curve[cliff.fast].y}, {"slow_ns", curve[cliff.slow].y}};
    if (!cliff.causes.empty()) {
      f.text += largest_detail(slow, cliff.causes.front().cls);
      f.numbers.emplace_back("share", cliff.causes.front().share);
    }
    f.text = fmt::format("{}{}: {}{}", line.axis, line.where.empty() ? "" : " (" + line.where + ")", f.text,
                         slow.emulated ? " [emulated network]" : "");
    f.confidence = confidence_of(fast, slow);
    out.push_back(std::move(f));
  }
}

std::string oom_words(const CaseRecord& c) {
  return c.peak_cause.empty() ? "out of memory" : "out of memory in " + c.peak_cause;
}

Finding boundary_finding(const CaseLine& line, const CaseRecord& fits, const CaseRecord& oom) {
  const std::string a = value_of(fits.axes, line.axis), b = value_of(oom.axes, line.axis);
  Finding f{Finding::Kind::kBoundary, "", line.axis, line.where, {fits.id, oom.id}, {}};
  f.text = fmt::format("{}{}: {} fits{}, {} does not: {}", line.axis, line.where.empty() ? "" : " (" + line.where + ")",
                       a, fits.status == Status::kNearOom ? ", near the limit" : "", b, oom_words(oom));
  if (is_number(a)) f.numbers.emplace_back("fits", std::atof(a.c_str()));
  if (is_number(b)) f.numbers.emplace_back("oom", std::atof(b.c_str()));
  f.confidence = Confidence::kHigh;
  return f;
}

// Scores the prediction that the search began at.
void tell_prediction(const CaseRecord& fits, const std::string& axis, Finding& f) {
  const auto predicted = fits.environment.find("boundary_predicted");
  if (predicted == fits.environment.end()) return;
  const bool right = predicted->second == value_of(fits.axes, axis);
  f.text += right ? "; the virtual world had predicted that"
                  : fmt::format("; the virtual world had predicted {}", predicted->second);
  f.numbers.emplace_back("predicted_right", right);
}

// Scores the rule that skipped cases: those that were run after all.
void tell_checks(const CaseLine& line, Finding& f) {
  int checks = 0, right = 0, skipped = 0;
  for (const CaseRecord* c : line.cases) {
    skipped += c->status == Status::kSkipped;
    const auto expected = c->environment.find("boundary_check");
    if (expected == c->environment.end()) continue;
    ++checks;
    right += expected->second == "oom" ? c->status == Status::kOom : measured(c->status);
  }
  if (skipped > 0) f.text += fmt::format("; {} other values were skipped", skipped);
  if (checks > 0) f.text += fmt::format(", {} of {} run to check that rule were as it said", right, checks);
  f.numbers.emplace_back("skipped", skipped);
  f.numbers.emplace_back("checks", checks);
  f.numbers.emplace_back("checks_right", right);
}

void add_violation(const CaseLine& line, std::vector<Finding>& out) {
  Finding f{Finding::Kind::kViolation, "", line.axis, line.where, {}, {}, Confidence::kHigh};
  f.text = fmt::format("{}{}: what fits does not follow the order of the values:", line.axis,
                       line.where.empty() ? "" : " (" + line.where + ")");
  for (const CaseRecord* c : line.cases) {
    if (!measured(c->status) && c->status != Status::kOom) continue;
    // Values that are no numbers are in the user's order, which need not be that of memory.
    if (!is_number(value_of(c->axes, line.axis))) return;
    f.text += fmt::format(" {} {},", value_of(c->axes, line.axis), measured(c->status) ? "fits" : "does not");
    f.cases.push_back(c->id);
  }
  f.text.pop_back();
  out.push_back(std::move(f));
}

void add_boundaries(const CaseLine& line, std::vector<Finding>& out) {
  // The values stand in the user's order: one that shrinks memory gives the same edge, read from its end.
  CaseLine backwards = line;
  std::reverse(backwards.cases.begin(), backwards.cases.end());
  for (const CaseLine* l : {&line, static_cast<const CaseLine*>(&backwards)}) {
    const auto edge = boundary_on(*l);
    if (!edge) return;
    if (!edge->last_fit || edge->violated) continue;
    out.push_back(boundary_finding(*l, *l->cases[*edge->last_fit], *l->cases[*edge->first_oom]));
    tell_prediction(*l->cases[*edge->last_fit], line.axis, out.back());
    return tell_checks(line, out.back());
  }
  const bool some_fit =
      std::any_of(line.cases.begin(), line.cases.end(), [](const auto* c) { return measured(c->status); });
  if (some_fit) add_violation(line, out);
}

void add_near(const CaseLine& line, std::vector<Finding>& out) {
  std::vector<const CaseRecord*> near;
  for (const CaseRecord* c : line.cases)
    if (c->status == Status::kNearOom) near.push_back(c);
  if (near.empty()) return;
  Finding f{Finding::Kind::kNearOom, "", line.axis, line.where, {}, {}, Confidence::kHigh};
  std::string values;
  for (const CaseRecord* c : near) {
    values += (values.empty() ? "" : ", ") + value_of(c->axes, line.axis);
    f.cases.push_back(c->id);
  }
  f.text = fmt::format("{}{}: {} {} only just: {}", line.axis, line.where.empty() ? "" : " (" + line.where + ")",
                       values, near.size() == 1 ? "fits" : "fit", near.back()->reason);
  out.push_back(std::move(f));
}

void add_samples(const CaseRecord& c, std::vector<Finding>& out) {
  if (!measured(c.status)) return;
  for (const std::string& note : judge_samples(c.samples).notes())
    out.push_back({Finding::Kind::kSamples, c.id + ": " + note, "", "", {c.id}, {}, Confidence::kMedium});
  if (c.observer_ratio && *c.observer_ratio > kObserverLimit)
    out.push_back({Finding::Kind::kObserver,
                   fmt::format("{}: traced steps are {:.0f} % slower than untraced ones; the partition explains the "
                               "slower program",
                               c.id, 100 * (*c.observer_ratio - 1)),
                   "",
                   "",
                   {c.id},
                   {{"observer_ratio", *c.observer_ratio}},
                   Confidence::kHigh});
}

}  // namespace

std::string_view name_of(Confidence c) {
  return c == Confidence::kLow ? "low" : c == Confidence::kMedium ? "medium" : "high";
}

std::string_view name_of(Finding::Kind kind) {
  static constexpr std::array<std::string_view, 6> kNames = {"cliff",     "boundary", "near_oom",
                                                             "violation", "samples",  "observer"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string work_unit(const std::string& axis) {
  if (axis == "batch" || axis == "seq" || axis == "accumulate") return "token";
  return axis == "layers" ? "layer" : "step";
}

CurvePoint curve_point(const CaseRecord& c, const std::string& axis) {
  CurvePoint p;
  p.value = axis + "=" + value_of(c.axes, axis);
  p.measured = measured(c.status) && !c.predicted && c.step_ns.has_value();
  const std::string unit = work_unit(axis);
  if (unit == "token")
    p.work = c.tokens_per_s && c.step_ns ? *c.tokens_per_s * static_cast<double>(*c.step_ns) / 1e9 : number_of(c, axis);
  if (unit == "layer") p.work = std::max(1.0, std::atof(value_of(c.axes, axis).c_str()));
  p.y = static_cast<double>(c.step_ns.value_or(0)) / p.work;
  p.low = static_cast<double>(c.step_ci_low_ns.value_or(0)) / p.work;
  p.high =
      c.step_ci_high_ns ? static_cast<double>(*c.step_ci_high_ns) / p.work : std::numeric_limits<double>::infinity();
  p.partition = c.partition;
  if (const auto at = c.environment.find("predicted_contention_ns"); at != c.environment.end())
    p.contention_ns = std::atof(at->second.c_str());
  p.checkpoint = value_of(c.settings, "checkpoint");
  return p;
}

std::vector<CaseLine> lines_along(const Axes& axes, const std::vector<CaseRecord>& cases, const std::string& axis) {
  std::vector<std::string> order;
  for (const auto& [name, values] : axes)
    if (name == axis) order = values;
  std::vector<CaseLine> lines;
  std::map<std::string, std::size_t> by_where;
  for (const CaseRecord& c : cases) {
    if (value_of(c.axes, axis).empty()) continue;
    std::string where;
    for (const auto& [name, value] : c.axes)
      if (name != axis) where += (where.empty() ? "" : ", ") + name + "=" + value;
    const auto [found, fresh] = by_where.emplace(where, lines.size());
    if (fresh) lines.push_back({axis, where, {}});
    lines[found->second].cases.push_back(&c);
  }
  const auto place = [&](const CaseRecord* c) {
    return std::find(order.begin(), order.end(), value_of(c->axes, axis)) - order.begin();
  };
  for (CaseLine& line : lines)
    std::stable_sort(line.cases.begin(), line.cases.end(),
                     [&](const CaseRecord* a, const CaseRecord* b) { return place(a) < place(b); });
  return lines;
}

std::vector<NeighbourStep> neighbour_steps(const CaseLine& line) {
  std::vector<CurvePoint> curve;
  for (const CaseRecord* c : line.cases) curve.push_back(curve_point(*c, line.axis));
  std::vector<NeighbourStep> steps;
  std::optional<std::size_t> before;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    // Predicted points have neighbours too; only measured ones make a cliff.
    if (!measured(line.cases[i]->status) || curve[i].y <= 0) continue;
    if (before) {
      const CurvePoint &a = curve[*before], &b = curve[i];
      NeighbourStep s{*before, i, b.y / a.y - 1, a.high < b.low || b.high < a.low, false, {}};
      s.growth = s.change >= 0 ? growth_between(a, b) : growth_between(b, a);
      steps.push_back(std::move(s));
    }
    before = i;
  }
  for (const Cliff& cliff : find_cliffs(curve)) {
    const auto [low, high] = std::minmax(cliff.fast, cliff.slow);
    for (NeighbourStep& s : steps) s.cliff = s.cliff || (s.from == low && s.to == high);
  }
  return steps;
}

std::optional<LineBoundary> boundary_on(const CaseLine& line) {
  LineBoundary edge;
  for (std::size_t i = 0; i < line.cases.size(); ++i) {
    const Status status = line.cases[i]->status;
    if (measured(status)) {
      if (edge.first_oom) edge.violated = true;
      if (!edge.first_oom) edge.last_fit = i;
    } else if (status == Status::kOom && !edge.first_oom) {
      edge.first_oom = i;
    }
  }
  if (!edge.first_oom) return std::nullopt;
  return edge;
}

std::vector<Finding> find_findings(const Axes& axes, const std::vector<CaseRecord>& cases) {
  std::vector<Finding> cliffs, edges, samples;
  // The last axis first: it is the one that a boundary search went along.
  for (auto at = axes.rbegin(); at != axes.rend(); ++at) {
    const auto& [axis, values] = *at;
    if (values.size() < 2 || !ordered(axis)) continue;
    for (const CaseLine& line : lines_along(axes, cases, axis)) {
      add_cliffs(line, cliffs);
      add_boundaries(line, edges);
      add_near(line, edges);
    }
  }
  for (const CaseRecord& c : cases) add_samples(c, samples);
  std::stable_sort(cliffs.begin(), cliffs.end(), [](const Finding& a, const Finding& b) {
    return a.numbers.front().second > b.numbers.front().second;
  });
  cliffs.insert(cliffs.end(), edges.begin(), edges.end());
  cliffs.insert(cliffs.end(), samples.begin(), samples.end());
  return cliffs;
}

}  // namespace harness
