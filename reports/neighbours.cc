#include "reports/neighbours.h"

#include <algorithm>
#include <limits>
#include <map>

#include "harness/advise/cliffs.h"

namespace reports {
namespace {

using harness::CaseRecord;
using harness::Status;

constexpr auto kCompute = static_cast<std::size_t>(harness::PartitionClass::kCompute);
constexpr auto kOverlapped = static_cast<std::size_t>(harness::PartitionClass::kOverlapped);

double work_of(const CaseRecord& c, bool per_token) {
  if (!per_token || !c.tokens_per_s || !c.step_ns) return 1;
  return *c.tokens_per_s * static_cast<double>(*c.step_ns) / 1e9;
}

bool intervals_disjoint(const CaseRecord& a, const CaseRecord& b, bool per_token) {
  if (!a.step_ci_low_ns || !a.step_ci_high_ns || !b.step_ci_low_ns || !b.step_ci_high_ns) return false;
  const double wa = work_of(a, per_token), wb = work_of(b, per_token);
  const auto scaled = [](fsdp::Nanos ns, double work) { return static_cast<double>(ns) / work; };
  return scaled(*a.step_ci_high_ns, wa) < scaled(*b.step_ci_low_ns, wb) ||
         scaled(*b.step_ci_high_ns, wb) < scaled(*a.step_ci_low_ns, wa);
}

NeighbourStep step_between(const ReportInput& input, std::size_t from, std::size_t to, bool per_token) {
  const CaseRecord& a = input.cases[from];
  const CaseRecord& b = input.cases[to];
  NeighbourStep step;
  step.from = from;
  step.to = to;
  step.change = *cost_of(b, per_token) / *cost_of(a, per_token) - 1;
  step.disjoint = intervals_disjoint(a, b, per_token);
  const Growth g = step.change >= 0 ? growth(a, b, per_token) : growth(b, a, per_token);
  if (!g.parts.empty()) {
    step.cause = g.parts.front().cls;
    step.share = g.parts.front().ns / g.total;
  }
  return step;
}

harness::CurvePoint curve_point(const CaseRecord& c, bool per_token) {
  const double work = work_of(c, per_token);
  harness::CurvePoint p;
  p.measured = !c.predicted;
  p.y = *cost_of(c, per_token);
  // Without an interval nothing is told apart.
  p.low = static_cast<double>(c.step_ci_low_ns.value_or(0)) / work;
  p.high = c.step_ci_high_ns ? static_cast<double>(*c.step_ci_high_ns) / work : std::numeric_limits<double>::infinity();
  return p;
}

// `line`: the cases between which the steps lie.
void mark_cliffs(const ReportInput& input, const Line& line, std::vector<NeighbourStep>& steps, bool per_token) {
  std::vector<harness::CurvePoint> curve;
  for (const std::size_t i : line) curve.push_back(curve_point(input.cases[i], per_token));
  for (const harness::Cliff& cliff : harness::find_cliffs(curve)) {
    const std::size_t fast = line[cliff.fast], slow = line[cliff.slow];
    for (NeighbourStep& s : steps) {
      s.cliff = s.cliff || (s.from == fast && s.to == slow) || (s.from == slow && s.to == fast);
    }
  }
}

std::vector<NeighbourStep> steps_on(const ReportInput& input, const Line& line, std::size_t axis, bool per_token) {
  Line timed = line;
  std::erase_if(timed, [&](std::size_t i) { return !cost_of(input.cases[i], per_token); });
  std::vector<NeighbourStep> steps;
  for (std::size_t k = 0; k + 1 < timed.size(); ++k) {
    steps.push_back(step_between(input, timed[k], timed[k + 1], per_token));
    steps.back().axis = axis;
  }
  mark_cliffs(input, timed, steps, per_token);
  return steps;
}

std::optional<Boundary> boundary_on(const ReportInput& input, const Line& growing, std::size_t axis) {
  Boundary edge;
  edge.axis = axis;
  for (const std::size_t i : growing) {
    const Status status = input.cases[i].status;
    if (harness::measured(status)) {
      if (edge.first_oom) edge.violated = true;
      if (!edge.first_oom) edge.last_fit = i;
    } else if (status == Status::kOom && !edge.first_oom) {
      edge.first_oom = i;
    }
  }
  if (!edge.first_oom) return std::nullopt;
  return edge;
}

}  // namespace

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

std::vector<NeighbourStep> neighbour_steps(const ReportInput& input, const SweepShape& shape, const Workload& workload,
                                           bool per_token) {
  std::vector<NeighbourStep> all;
  for (std::size_t axis = 0; axis < shape.axes.size(); ++axis) {
    if (shape.axes[axis].workload || shape.axes[axis].values.size() < 2) continue;
    for (const Line& line : lines_along(shape, workload, axis)) {
      const auto steps = steps_on(input, line, axis, per_token);
      all.insert(all.end(), steps.begin(), steps.end());
    }
  }
  return all;
}

std::vector<Boundary> boundaries(const ReportInput& input, const SweepShape& shape, const Workload& workload) {
  std::vector<Boundary> all;
  for (std::size_t axis = 0; axis < shape.axes.size(); ++axis) {
    const bool granularity = static_cast<int>(axis) == shape.granularity;
    const std::string& name = shape.axes[axis].name;
    if (!granularity && name != "batch" && name != "seq") continue;
    for (Line line : lines_along(shape, workload, axis)) {
      if (granularity) std::reverse(line.begin(), line.end());
      if (auto edge = boundary_on(input, line, axis)) all.push_back(*edge);
    }
  }
  return all;
}

Growth growth(const CaseRecord& from, const CaseRecord& to, bool per_token) {
  Growth g;
  if (!from.partition || !to.partition) return g;
  const auto in = [&](const CaseRecord& c, std::size_t i) {
    return static_cast<double>((*c.partition)[i]) / work_of(c, per_token);
  };
  for (std::size_t i = 0; i < harness::kPartitionClassCount; ++i) {
    if (i == kOverlapped) continue;
    double more = in(to, i) - in(from, i);
    if (i == kCompute) more += in(to, kOverlapped) - in(from, kOverlapped);
    if (more <= 0) continue;
    g.parts.push_back({static_cast<harness::PartitionClass>(i), more});
    g.total += more;
  }
  std::stable_sort(g.parts.begin(), g.parts.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
  return g;
}

}  // namespace reports
