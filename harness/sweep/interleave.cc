#include "harness/sweep/interleave.h"

#include <algorithm>
#include <set>
#include <string>

#include "fsdp/core/clock.h"
#include "harness/analysis/signed_rank.h"

namespace harness {
namespace {

std::vector<fsdp::Nanos> samples_of(const std::vector<CaseRecord>& rounds) {
  std::vector<fsdp::Nanos> all;
  for (const CaseRecord& r : rounds) all.push_back(undisturbed(r.samples));
  return all;
}

// Decides whether case `i` has enough rounds. Its ratio to the first running case decides, not its own spread.
RepeatStop stop_of(const RepeatPolicy& p, const std::vector<std::vector<CaseRecord>>& rounds, std::size_t first,
                   std::size_t i, fsdp::Nanos spent) {
  const std::vector<fsdp::Nanos> samples = samples_of(rounds[i]);
  const int n = static_cast<int>(samples.size());
  if (n >= p.max) return RepeatStop::kMax;
  if (i == first) return n >= p.min ? RepeatStop::kNarrow : RepeatStop::kContinue;
  const std::vector<double> ratios = log_ratios(samples_of(rounds[first]), samples);
  const Location ratio = signed_rank_location(ratios);
  if (n >= p.min && signed_rank_critical(static_cast<int>(ratios.size())) > 0 && ratio.half_width() <= p.relative_ci)
    return RepeatStop::kNarrow;
  return spent >= p.time && n >= 1 ? RepeatStop::kTime : RepeatStop::kContinue;
}

std::string_view stop_name(RepeatStop s) {
  return s == RepeatStop::kNarrow ? "narrow" : s == RepeatStop::kMax ? "max" : "time";
}

}  // namespace

CaseRecord merge_rounds(const std::vector<CaseRecord>& rounds, const std::string& stopped_by) {
  CaseRecord r = rounds.front();
  const auto old_step = r.step_ns;
  r.samples = samples_of(rounds);
  const SampleSummary s = summarize(r.samples);
  r.step_ns = s.median;
  r.step_mad_ns = s.mad;
  r.step_ci_low_ns = s.ci_low;
  r.step_ci_high_ns = s.ci_high;
  r.ci_coverage = s.coverage;
  r.repetitions = s.n;
  r.stopped_by = stopped_by;
  const double change = old_step && s.median > 0 ? static_cast<double>(*old_step) / static_cast<double>(s.median) : 1;
  if (r.tokens_per_s) r.tokens_per_s = *r.tokens_per_s * change;
  if (r.observer_ratio) r.observer_ratio = *r.observer_ratio * change;
  for (const CaseRecord& other : rounds) {
    if (other.status == Status::kNearOom) r.status = Status::kNearOom, r.reason = other.reason;
    if (other.peak_bytes && (!r.peak_bytes || *other.peak_bytes > *r.peak_bytes))
      r.peak_bytes = other.peak_bytes, r.peak_cause = other.peak_cause;
    r.finished_at = std::max(r.finished_at, other.finished_at);
    for (const std::string& w : other.warnings)
      if (std::find(r.warnings.begin(), r.warnings.end(), w) == r.warnings.end()) r.warnings.push_back(w);
  }
  r.environment[kInterleavedKey] = std::to_string(rounds.size());
  return r;
}

namespace {
// The rounds that every case has.
void keep_whole_rounds(std::vector<std::vector<CaseRecord>>& rounds) {
  std::size_t whole = rounds.empty() ? 0 : rounds.front().size();
  for (const auto& r : rounds) whole = std::min(whole, r.size());
  for (auto& r : rounds) r.erase(r.begin() + static_cast<std::ptrdiff_t>(whole), r.end());
}
}  // namespace

bool run_interleaved(std::size_t cases, const RepeatPolicy& policy, double alone_relative_ci, bool trace,
                     const RunRound& run, const CaseDone& done, std::vector<std::vector<CaseRecord>> rounds,
                     const RoundDone& round_done) {
  rounds.resize(cases);
  keep_whole_rounds(rounds);
  std::set<std::size_t> running;
  for (std::size_t i = 0; i < cases; ++i) running.insert(i);
  RepeatPolicy whole = policy;
  whole.time = policy.time * static_cast<fsdp::Nanos>(std::max<std::size_t>(1, cases));
  RepeatPolicy alone = whole;
  alone.relative_ci = alone_relative_ci;
  const fsdp::Nanos begin = fsdp::steady_now();
  std::string stopped_by = "max";
  const auto more = [&] {
    bool go_on = running.empty() || rounds[*running.begin()].empty();
    for (const std::size_t i : running) {
      if (rounds[i].empty()) break;
      const fsdp::Nanos spent = fsdp::steady_now() - begin;
      const RepeatStop s = running.size() == 1 ? repeat_decision(alone, samples_of(rounds[i]), spent)
                                               : stop_of(whole, rounds, *running.begin(), i, spent);
      go_on = go_on || s == RepeatStop::kContinue;
      stopped_by = stop_name(s);
      if (s == RepeatStop::kTime || s == RepeatStop::kMax) return false;
    }
    return go_on;
  };
  while (!running.empty() && more()) {
    std::vector<std::size_t> turn(running.begin(), running.end());
    if (rounds[turn.front()].size() % 2 == 1) std::reverse(turn.begin(), turn.end());
    for (const std::size_t i : turn) {
      auto r = run(i, trace && rounds[i].empty());
      if (!r) return false;
      if (measured(r->status)) {
        rounds[i].push_back(std::move(*r));
        if (round_done) round_done(i, rounds[i].size() - 1, rounds[i].back());
      } else {
        running.erase(i);
        done(i, std::move(*r));
      }
    }
  }
  for (const std::size_t i : running) done(i, merge_rounds(rounds[i], stopped_by));
  return true;
}

}  // namespace harness
