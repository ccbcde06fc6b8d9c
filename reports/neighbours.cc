#include "reports/neighbours.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace reports {
namespace {

using harness::CaseRecord;
using harness::Status;

constexpr double kCliffChange = 0.10;  // metrics 9.1 (1)
constexpr double kCliffFactor = 3;     // metrics 9.1 (3)

constexpr auto kCompute = static_cast<std::size_t>(harness::PartitionClass::kCompute);
constexpr auto kOverlapped = static_cast<std::size_t>(harness::PartitionClass::kOverlapped);

// A line of two or three points has no "other neighbours" to stand out from.
constexpr std::size_t kPointsForSlope = 4;

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

double median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

void mark_cliffs(std::vector<NeighbourStep>& steps) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double up = std::fabs(std::log1p(steps[i].change));
    bool stands_out = true;
    if (steps.size() + 1 >= kPointsForSlope) {
      std::vector<double> others;
      for (std::size_t j = 0; j < steps.size(); ++j) {
        if (j != i) others.push_back(std::fabs(std::log1p(steps[j].change)));
      }
      stands_out = up >= kCliffFactor * median_of(others);
    }
    // max/min - 1 of the pair, whichever is the slower.
    steps[i].cliff = std::expm1(up) >= kCliffChange && steps[i].disjoint && stands_out;
  }
}

std::vector<NeighbourStep> steps_on(const ReportInput& input, const Line& line, std::size_t axis, bool per_token) {
  std::vector<NeighbourStep> steps;
  std::optional<std::size_t> before;
  for (const std::size_t i : line) {
    const CaseRecord& c = input.cases[i];
    if (!harness::measured(c.status) || !cost_of(c, per_token)) continue;
    if (before) {
      steps.push_back(step_between(input, *before, i, per_token));
      steps.back().axis = axis;
    }
    before = i;
  }
  mark_cliffs(steps);
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
