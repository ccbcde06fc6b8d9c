#include "harness/trial/assemble.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fsdp/core/errors.h"
#include "harness/sweep/quantities.h"
#include "harness/trial/case_units.h"
#include "harness/trial/environment.h"

namespace harness {
namespace {
constexpr double kNearBudget = 0.95;
constexpr double kObserverLimit = 1.05;  // above it the traced times are not to be trusted as times

// The value of each step over ranks, combined in rank order; as many steps as every rank has.
template <typename Get, typename Finish>
std::vector<double> over_ranks(const std::vector<RankResult>& results, Get get, Finish finish) {
  std::size_t steps = get(results.front()).size();
  for (const RankResult& r : results) steps = std::min(steps, get(r).size());
  std::vector<double> out(steps);
  for (std::size_t i = 0; i < steps; ++i) {
    double sum = 0;
    for (const RankResult& r : results) sum += get(r)[i];
    out[i] = finish(sum);
  }
  return out;
}

void fill_memory(CaseRecord& record, const CaseSettings& settings, const std::vector<RankResult>& results) {
  const auto most = std::max_element(results.begin(), results.end(), [](const RankResult& a, const RankResult& b) {
    return a.peak.total < b.peak.total;
  });
  record.peak_bytes = most->peak.total;
  record.peak_cause = most->peak_cause;
  record.status = Status::kOk;
  const fsdp::Bytes budget = settings.memory_budget;
  if (budget == fsdp::MemoryMeter::kNoBudget) return;
  if (static_cast<double>(most->peak.total) >= kNearBudget * static_cast<double>(budget)) {
    record.status = Status::kNearOom;
    record.reason = "the peak of " + format_bytes(most->peak.total) + " on rank " + std::to_string(most->rank) +
                    " is within 5 % of the budget of " + format_bytes(budget) + " (" + most->peak_cause + ")";
  }
}

void fill_partition(CaseRecord& record, const std::vector<RankResult>& results) {
  std::vector<std::vector<StepPartition>> partitions;
  std::size_t slowest = 0;
  std::vector<fsdp::Nanos> totals;
  for (const RankResult& r : results) {
    partitions.push_back(partition_steps(r.spans));
    fsdp::Nanos total = 0;
    for (const StepPartition& p : partitions.back()) {
      record.steps.push_back({r.rank, p.step, p.end - p.begin, p.classes});
      total += p.end - p.begin;
    }
    totals.push_back(total);
    if (total > totals[slowest]) slowest = totals.size() - 1;
  }
  const StepPartition& step = partitions[slowest][median_step(partitions[slowest])];
  record.partition = step.classes;
  record.partition_rank = results[slowest].rank;
  record.partition_step = step.step;
  record.partition_details = step.details;
  record.unit_metrics = unit_metrics(results[slowest].spans, step);
  record.traced_step_ns = step.end - step.begin;
  if (step.communication > 0) {
    record.overlap_pct =
        100.0 * static_cast<double>(step.communication_hidden) / static_cast<double>(step.communication);
  }
  for (const RankResult& r : results) {
    std::copy_if(r.spans.begin(), r.spans.end(), std::back_inserter(record.spans),
                 [&](const fsdp::Span& s) { return s.step == step.step; });
  }
  if (!record.step_ns || *record.step_ns <= 0) return;
  record.observer_ratio = static_cast<double>(*record.traced_step_ns) / static_cast<double>(*record.step_ns);
  if (*record.observer_ratio > kObserverLimit) {
    record.warnings.push_back("the traced step took " + format_nanos(*record.traced_step_ns) + ", the untraced one " +
                              format_nanos(*record.step_ns) + ": read the partition as shares, not as times");
  }
}

void add_once(std::vector<std::string>& warnings, const std::string& text) {
  if (std::find(warnings.begin(), warnings.end(), text) == warnings.end()) warnings.push_back(text);
}
}  // namespace

void fill_units(CaseRecord& record, const CaseSettings& settings) {
  const fsdp::UnitPlan plan = plan_of(settings);
  record.unit_table = unit_records(settings, plan);
  record.units = static_cast<std::int64_t>(record.unit_table.size());
  fsdp::Bytes largest = 0;
  for (const UnitRecord& u : record.unit_table) largest = std::max(largest, u.unsharded_bytes);
  record.largest_unit_bytes = largest;
  for (const std::string& note : plan.notes) add_once(record.warnings, note);
}

CaseRecord begin_record(const CaseSettings& settings) {
  CaseRecord record;
  record.id = case_id(settings);
  record.settings = all_settings(settings);
  record.files = files_of(settings);
  record.environment = host_environment();
  record.environment["command"] = command_of(settings);
  return record;
}

void fill_samples(CaseRecord& record, const CaseSettings& settings, const std::vector<fsdp::Nanos>& samples,
                  RepeatStop stop) {
  record.samples = samples;
  record.repetitions = static_cast<std::int64_t>(samples.size());
  record.stopped_by = stop == RepeatStop::kNarrow ? "narrow" : stop == RepeatStop::kTime ? "time" : "max";
  if (samples.empty()) return;
  const SampleSummary s = summarize(samples);
  record.step_ns = s.median;
  record.step_mad_ns = s.mad;
  record.step_ci_low_ns = s.ci_low;
  record.step_ci_high_ns = s.ci_high;
  record.ci_coverage = s.coverage;
  if (s.median <= 0) return;
  const double tokens = static_cast<double>(settings.world) * settings.batch * settings.accumulate * seq_of(settings);
  record.tokens_per_s = tokens * 1e9 / static_cast<double>(s.median);
}

void fill_results(CaseRecord& record, const CaseSettings& settings, const std::vector<RankResult>& results) {
  SHARDSCOPE_CHECK(!results.empty(), "no rank");
  const double world = static_cast<double>(results.size());
  record.losses = over_ranks(
      results, [](const RankResult& r) -> auto& { return r.losses; }, [=](double s) { return s / world; });
  record.grad_norms = over_ranks(
      results, [](const RankResult& r) -> auto& { return r.gradient_square_sums; },
      [](double s) { return std::sqrt(s); });
  fill_memory(record, settings, results);
  record.prefetch = results.front().prefetch;  // ranks agree on what they gather
  record.collectives = 0;
  record.communicated_bytes = 0;
  for (const RankResult& r : results) {
    record.ranks.push_back({r.rank, r.peak, r.category_peaks, r.peak_cause, r.traced_step_ns});
    record.collectives = std::max(*record.collectives, r.collectives_per_step);
    record.communicated_bytes = std::max(*record.communicated_bytes, r.communicated_bytes_per_step);
    for (const std::string& w : r.warnings) add_once(record.warnings, w);
  }
  for (const auto& [key, value] : results.front().environment) record.environment[key] = value;
  if (settings.device == DeviceKind::kCpu && settings.world > usable_cores()) {
    add_once(record.warnings, std::to_string(settings.world) + " ranks share " + std::to_string(usable_cores()) +
                                  " cores: their times include waiting for a core");
  }
  const bool traced = std::all_of(results.begin(), results.end(), [](const RankResult& r) { return !r.spans.empty(); });
  if (traced) fill_partition(record, results);
}

}  // namespace harness
