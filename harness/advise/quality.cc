#include "harness/advise/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/analysis/statistics.h"

namespace harness {
namespace {

constexpr int kLeastSamples = 6;
constexpr double kRobustSigmas = 5 * 1.4826;
constexpr double kLeastChange = 0.01;

}  // namespace

int warmup_length(const std::vector<fsdp::Nanos>& samples) {
  const int n = static_cast<int>(samples.size());
  if (n < kLeastSamples) return 0;
  // From the longest candidate down: all of the first w must stand out above everything after them.
  for (int w = n / 3; w > 0; --w) {
    const SampleSummary rest = summarize({samples.begin() + w, samples.end()});
    const double limit = static_cast<double>(rest.median) + std::max(kRobustSigmas * static_cast<double>(rest.mad),
                                                                     kLeastChange * static_cast<double>(rest.median));
    const fsdp::Nanos largest = *std::max_element(samples.begin() + w, samples.end());
    if (std::all_of(samples.begin(), samples.begin() + w,
                    [&](fsdp::Nanos x) { return static_cast<double>(x) > limit && x > largest; }))
      return w;
  }
  return 0;
}

namespace {

constexpr std::size_t kLeastForShift = 20, kLeastLevel = 5, kMostShifts = 3;
constexpr double kShiftChance = 1e-4;  // that equal samples split so well
constexpr double kDriftOfStep = 0.3;   // a level that drifts by more of its step is none
using Samples = std::vector<fsdp::Nanos>;

// Mean ranks, from 1; equal values share theirs.
std::vector<double> ranks_of(const Samples& x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> ranks(x.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && x[order[end]] == x[order[i]]) ++end;
    for (std::size_t k = i; k < end; ++k) ranks[order[k]] = (static_cast<double>(i + end) + 1) / 2;
    i = end;
  }
  return ranks;
}

// Where the sum of ranks is furthest from that of equal samples; 0: nowhere far enough.
std::size_t best_split(const Samples& x) {
  const auto n = static_cast<double>(x.size());
  const std::vector<double> ranks = ranks_of(x);
  double sum = 0, most = 0;
  std::size_t at = 0;
  for (std::size_t k = 1; k < x.size(); ++k) {
    sum += ranks[k - 1];
    const double u = std::abs(2 * sum - static_cast<double>(k) * (n + 1));
    if (k >= kLeastLevel && k + kLeastLevel <= x.size() && u > most) most = u, at = k;
  }
  return 2 * std::exp(-6 * most * most / (n * n * n + n * n)) < kShiftChance ? at : 0;
}

void split(const Samples& x, std::size_t offset, std::vector<std::size_t>& at) {
  if (x.size() < 2 * kLeastLevel || at.size() > kMostShifts) return;
  const std::size_t k = best_split(x);
  if (k == 0) return;
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(k);
  split({x.begin(), middle}, offset, at);
  at.push_back(offset + k);
  split({middle, x.end()}, offset + k, at);
}

double drift_of(const Samples& x) {
  const auto third = static_cast<std::ptrdiff_t>(x.size() / 3);
  if (third == 0) return 0;
  return static_cast<double>(median(Samples(x.end() - third, x.end()))) -
         static_cast<double>(median(Samples(x.begin(), x.begin() + third)));
}

// The samples between change points.
std::vector<Samples> levels_of(const Samples& x, const std::vector<std::size_t>& at) {
  std::vector<Samples> levels;
  std::size_t from = 0;
  for (std::size_t k = 0; k <= at.size(); ++k) {
    const std::size_t end = k < at.size() ? at[k] : x.size();
    levels.emplace_back(x.begin() + static_cast<std::ptrdiff_t>(from), x.begin() + static_cast<std::ptrdiff_t>(end));
    from = end;
  }
  return levels;
}

}  // namespace

std::vector<LevelShift> level_shifts(const std::vector<fsdp::Nanos>& samples) {
  if (samples.size() < kLeastForShift) return {};
  std::vector<std::size_t> at;
  split(samples, 0, at);
  if (at.empty() || at.size() > kMostShifts) return {};
  const std::vector<Samples> levels = levels_of(samples, at);
  std::vector<LevelShift> out;
  for (std::size_t k = 0; k < at.size(); ++k) {
    const LevelShift s{static_cast<int>(at[k]), median(levels[k]), median(levels[k + 1])};
    const double step = std::abs(static_cast<double>(s.after - s.before));
    if (s.before <= 0 || step < kLeastChange * static_cast<double>(s.before)) return {};
    for (const Samples* level : {&levels[k], &levels[k + 1]})
      if (std::abs(drift_of(*level)) > kDriftOfStep * step) return {};
    out.push_back(s);
  }
  return out;
}

SampleQuality judge_samples(const std::vector<fsdp::Nanos>& samples) {
  SampleQuality q;
  q.n = static_cast<int>(samples.size());
  if (q.n == 0) return q;
  const SampleSummary s = summarize(samples);
  q.outliers = s.outliers;
  q.warmup = warmup_length(samples);
  if (q.warmup == 0) q.shifts = level_shifts(samples);
  if (!q.shifts.empty()) {
    std::vector<std::size_t> at;
    for (const LevelShift& shift : q.shifts) at.push_back(static_cast<std::size_t>(shift.at));
    q.outliers = 0;
    for (const Samples& level : levels_of(samples, at)) q.outliers += summarize(level).outliers;
  }
  if (q.n < kLeastSamples || s.median <= 0) return q;
  const auto third = static_cast<std::ptrdiff_t>(q.n / 3);
  const fsdp::Nanos first = median(std::vector(samples.begin(), samples.begin() + third));
  const fsdp::Nanos last = median(std::vector(samples.end() - third, samples.end()));
  q.drift = static_cast<double>(last) / static_cast<double>(first) - 1;
  const double width = static_cast<double>(s.ci_high - s.ci_low) / static_cast<double>(s.median);
  q.drifted = std::abs(q.drift) > std::max(width, kLeastChange);
  return q;
}

std::vector<std::string> SampleQuality::notes() const {
  std::vector<std::string> out;
  if (warmup > 0)
    out.push_back(fmt::format(
        "the first {} of {} samples are slower than all that follow: more warm-up steps are needed", warmup, n));
  for (const LevelShift& s : shifts)
    out.push_back(fmt::format(
        "the level shifts after sample {} of {}: {:.3f} ms before, {:.3f} ms after ({:+.1f} %); something changed "
        "meanwhile, and one median stands for no level",
        s.at, n, static_cast<double>(s.before) / 1e6, static_cast<double>(s.after) / 1e6,
        100 * (static_cast<double>(s.after) / static_cast<double>(s.before) - 1)));
  if (drifted && shifts.empty())
    out.push_back(fmt::format("the samples drift: the last third is {:.1f} % {} than the first", 100 * std::abs(drift),
                              drift > 0 ? "slower" : "faster"));
  if (outliers > 0) out.push_back(fmt::format("{} of {} samples are outliers; they are kept", outliers, n));
  return out;
}

}  // namespace harness
