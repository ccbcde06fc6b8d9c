#include "harness/sweep/boundary_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fsdp/core/memory_meter.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

bool numeric(const std::vector<std::string>& values) {
  return std::all_of(values.begin(), values.end(), [](const std::string& v) { return whole_number(v).has_value(); });
}

class Run {
 public:
  Run(const SweepSpec& spec, const std::vector<std::pair<std::string, std::string>>& point, const BoundaryHooks& hooks)
      : spec_(spec), what_(*spec.boundary), hooks_(hooks), search_(static_cast<int>(what_.values.size())) {
    for (const std::string& value : what_.values) {
      auto axes = point;
      axes.emplace_back(what_.setting, value);
      cases_.push_back(make_case(spec, axes));
      if (hooks.checked) cases_.back() = hooks.checked(std::move(cases_.back()));
    }
    if (numeric(what_.values))
      for (const std::string& v : what_.values) numbers_.push_back(static_cast<double>(*whole_number(v)));
  }

  BoundaryRun go() {
    for (int i = 0; i < static_cast<int>(cases_.size()); ++i)
      if (const auto r = hooks_.stored(at(i))) note(i, *r);
    first_prediction();
    while (const auto i = search_.next()) {
      const auto r = hooks_.run(at(*i));
      if (!r) return ended(true);
      note(*i, *r);
      // What was predicted holds until a trial contradicts it: then the line through the peaks knows more.
      if (!numbers_.empty() && !as_predicted() && budget() != fsdp::MemoryMeter::kNoBudget)
        if (const auto p = predict_from_peaks(numbers_, peaks_, budget())) search_.predict(*p);
    }
    return check() && skip_rest() ? ended(false) : ended(true);
  }

 private:
  const SweepCase& at(int i) const { return cases_[static_cast<std::size_t>(i)]; }
  fsdp::Bytes budget() const { return cases_.front().settings.memory_budget; }

  void note(int i, const CaseRecord& r) {
    search_.record(i, fit_of(r.status));
    if (measured(r.status) && r.peak_bytes) peaks_.emplace_back(i, *r.peak_bytes);
  }

  void first_prediction() {
    if (what_.start) {
      const auto found = std::find(what_.values.begin(), what_.values.end(), *what_.start);
      search_.predict(static_cast<int>(found - what_.values.begin()));
    } else if (hooks_.predict && search_.next()) {
      predicted_ = hooks_.predict(cases_);
      if (predicted_) search_.predict(*predicted_);
    }
  }

  bool as_predicted() const {
    if (!predicted_) return false;
    const BoundaryResult r = search_.result();
    return (!r.last_fit || *r.last_fit <= *predicted_) && (!r.first_oom || *r.first_oom > *predicted_);
  }

  // A finished sweep that is started again has its checks already: only fresh searches are scored.
  bool check() {
    for (const SweepCase& c : cases_)
      if (const auto r = hooks_.stored(c); r && r->environment.count(kBoundaryCheckKey) != 0) return true;
    const BoundaryResult result = search_.result();
    for (const int i : search_.check_sample(what_.check, text_hash(at(0).id))) {
      const bool above = result.first_oom && i > *result.first_oom;
      const auto r = hooks_.run_check(at(i), above ? "oom" : "fits");
      if (!r) return false;
      ++checks_;
      checks_right_ += fit_of(r->status) == Fit::kDoesNot ? above : measured(r->status) && !above;
      search_.check(i, fit_of(r->status));
    }
    return true;
  }

  bool skip_rest() {
    const BoundaryResult result = search_.result();
    for (const int i : search_.skipped()) hooks_.skip(at(i), skip_reason(what_, result, i));
    return true;
  }

  BoundaryRun ended(bool interrupted) const { return {search_.result(), checks_, checks_right_, interrupted}; }

  const SweepSpec& spec_;
  const BoundarySpec& what_;
  const BoundaryHooks& hooks_;
  BoundarySearch search_;
  std::vector<SweepCase> cases_;
  std::vector<double> numbers_;
  std::vector<std::pair<int, fsdp::Bytes>> peaks_;
  std::optional<int> predicted_;
  int checks_ = 0, checks_right_ = 0;
};

}  // namespace

std::optional<int> largest_that_fits(int count, const std::function<std::optional<bool>(int)>& fits) {
  int low = -1, high = count;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    const auto answer = fits(middle);
    if (!answer) return std::nullopt;
    (*answer ? low : high) = middle;
  }
  return low;
}

std::string skip_reason(const BoundarySpec& spec, const BoundaryResult& result, int index) {
  const auto value = [&](int i) {
    return fmt::format("{}={}", spec.setting, spec.values[static_cast<std::size_t>(i)]);
  };
  if (result.last_fit && index < *result.last_fit)
    return fmt::format("dominated by {}, which fits", value(*result.last_fit));
  if (result.first_oom && index > *result.first_oom)
    return fmt::format("dominated by {}, which ran out of memory", value(*result.first_oom));
  if (result.blocked_by)
    return fmt::format("above {}, which ended neither well nor out of memory: the search went no further",
                       value(*result.blocked_by));
  return "not reached by the search";
}

BoundaryRun run_boundary(const SweepSpec& spec, const std::vector<std::pair<std::string, std::string>>& point,
                         const BoundaryHooks& hooks) {
  return Run(spec, point, hooks).go();
}

}  // namespace harness
