#include "reports/findings.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "fsdp/core/errors.h"
#include "harness/advise/findings.h"

namespace reports {
namespace {

using harness::CaseRecord;
using harness::Status;
using Index = std::optional<std::size_t>;

// What the program does when nothing is asked for; the baseline that gains are told against.
const std::vector<std::pair<std::string, std::string>> kStandard{{"wrap", "block"},
                                                                 {"backward_prefetch", "pre"},
                                                                 {"forward_prefetch", "1"},
                                                                 {"strategy", "full_shard"},
                                                                 {"reshard_after_forward", "auto"},
                                                                 {"max_inflight", "auto"},
                                                                 {"layout", "flat"},
                                                                 {"param_dtype", "fp32"},
                                                                 {"reduce_dtype", "fp32"},
                                                                 {"checkpoint", "none"},
                                                                 {"reduce_scatter_communicator", "shared"}};

// The case with the standard settings; what the sweep fixes or varies as work is taken as in the best case.
Index standard_case(const SweepShape& shape, const Workload& workload, const Index& best) {
  Index found;
  int most_alike = -1;
  for (const std::size_t i : workload.cases) {
    bool standard = true;
    int alike = 0;
    for (std::size_t a = 0; a < shape.axes.size(); ++a) {
      const Axis& axis = shape.axes[a];
      const std::string& value = axis.values[static_cast<std::size_t>(shape.at[i][a])];
      const auto known =
          std::find_if(kStandard.begin(), kStandard.end(), [&](const auto& s) { return s.first == axis.name; });
      const bool offered = known != kStandard.end() &&
                           std::find(axis.values.begin(), axis.values.end(), known->second) != axis.values.end();
      if (offered || axis.name == "wrap" || axis.name == "backward_prefetch") {
        standard = standard && value == known->second;
      } else if (best) {
        alike += shape.at[i][a] == shape.at[*best][a];
      }
    }
    if (standard && alike > most_alike) found = i, most_alike = alike;
  }
  return found;
}

// Where the sweep varies a setting and leaves its standard value out: "reshard after forward false".
std::vector<std::string> departures_of(const SweepShape& shape, std::size_t i) {
  std::vector<std::string> out;
  for (std::size_t a = 0; a < shape.axes.size(); ++a) {
    const Axis& axis = shape.axes[a];
    const std::string& value = axis.values[static_cast<std::size_t>(shape.at[i][a])];
    for (const auto& [name, standard] : kStandard)
      if (name == axis.name && axis.values.size() > 1 && value != standard) out.push_back(words_of(name) + " " + value);
  }
  return out;
}

// The case with this status that `better` prefers to all others.
template <typename Better>
Index pick(const ReportInput& input, const Workload& workload, bool per_token, Status status, Better better) {
  Index found;
  for (const std::size_t i : workload.cases) {
    if (input.cases[i].status != status) continue;
    const auto cost = cost_of(input.cases[i], per_token);
    if (cost && (!found || better(*cost, *cost_of(input.cases[*found], per_token)))) found = i;
  }
  return found;
}

harness::Recommendation advice_for(const ReportInput& input, const Workload& workload) {
  if (workload.cases.empty()) return {};
  try {
    return harness::recommend_among(input.cases, workload.cases, {});
  } catch (const fsdp::Error& e) {  // a setting that a foreign record holds and this program cannot read
    harness::Recommendation none;
    none.unit = "step";
    none.warnings.push_back(std::string("Nothing is recommended: ") + e.what());
    return none;
  }
}

// Rules of harness/advise speak of a line of records; the page of an axis and of cases.
harness::CaseLine records_of(const ReportInput& input, const SweepShape& shape, const Line& line, std::size_t axis) {
  harness::CaseLine records;
  records.axis = shape.axes[axis].name;
  for (const std::size_t i : line) records.cases.push_back(&input.cases[i]);
  return records;
}

void add_steps(const ReportInput& input, const SweepShape& shape, const Line& line, std::size_t axis, Findings& f) {
  for (const harness::NeighbourStep& s : harness::neighbour_steps(records_of(input, shape, line, axis))) {
    NeighbourStep step{axis, line[s.from], line[s.to], s.change, s.disjoint, s.cliff, {}, 0};
    if (!s.growth.parts.empty()) {
      step.cause = s.growth.parts.front().cls;
      step.share = s.growth.parts.front().ns / s.growth.total;
    }
    f.steps.push_back(step);
  }
}

// Along wrapping (fine to coarse), batch and seq, where memory grows with the axis.
void add_boundary(const ReportInput& input, const SweepShape& shape, Line line, std::size_t axis, Findings& f) {
  const bool granularity = static_cast<int>(axis) == shape.granularity;
  const std::string& name = shape.axes[axis].name;
  if (!granularity && name != "batch" && name != "seq") return;
  if (granularity) std::reverse(line.begin(), line.end());
  const auto edge = harness::boundary_on(records_of(input, shape, line, axis));
  if (!edge) return;
  const auto at = [&](const Index& i) { return i ? Index(line[*i]) : Index(); };
  f.boundaries.push_back({axis, at(edge->last_fit), at(edge->first_oom), edge->violated});
}

}  // namespace

std::optional<double> cost_of(const CaseRecord& c, bool per_token) {
  if (!harness::measured(c.status) || !c.step_ns || *c.step_ns <= 0) return std::nullopt;
  if (!per_token) return static_cast<double>(*c.step_ns);
  if (!c.tokens_per_s || *c.tokens_per_s <= 0) return std::nullopt;
  return 1e9 / *c.tokens_per_s;
}

Findings find(const ReportInput& input, const SweepShape& shape, const Workload& workload) {
  const harness::Recommendation advice = advice_for(input, workload);
  Findings f;
  f.per_token = advice.unit == "token";
  const auto extreme = [&](auto better) {
    const Index ok = pick(input, workload, f.per_token, Status::kOk, better);
    return ok ? ok : pick(input, workload, f.per_token, Status::kNearOom, better);
  };
  f.best = advice.best ? Index(advice.best->index) : extreme(std::less<>());
  f.worst = extreme(std::greater<>());
  f.standard = standard_case(shape, workload, f.best);
  if (f.standard) f.departures = departures_of(shape, *f.standard);
  for (const harness::Contender& k : advice.pareto) f.pareto.push_back(k.index);
  for (std::size_t axis = 0; axis < shape.axes.size(); ++axis) {
    if (shape.axes[axis].workload || shape.axes[axis].values.size() < 2) continue;
    for (const Line& line : lines_along(shape, workload, axis)) add_steps(input, shape, line, axis, f);
  }
  for (std::size_t axis = 0; axis < shape.axes.size(); ++axis) {
    for (const Line& line : lines_along(shape, workload, axis)) add_boundary(input, shape, line, axis, f);
  }
  write_answers(input, shape, workload, advice, f);
  return f;
}

}  // namespace reports
