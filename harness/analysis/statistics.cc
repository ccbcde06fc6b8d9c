#include "harness/analysis/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

// (a + b) / 2, halves to the even neighbour.
fsdp::Nanos half_sum(fsdp::Nanos a, fsdp::Nanos b) {
  const fsdp::Nanos down = (a & b) + ((a ^ b) >> 1);  // no sum, which might overflow
  return ((a ^ b) % 2 != 0 && down % 2 != 0) ? down + 1 : down;
}

// Times may be anything that a file or a rank says: |a - b| is the largest time where it has no room.
fsdp::Nanos distance(fsdp::Nanos a, fsdp::Nanos b) {
  fsdp::Nanos d = 0;
  constexpr fsdp::Nanos kMost = std::numeric_limits<fsdp::Nanos>::max();
  return __builtin_sub_overflow(std::max(a, b), std::min(a, b), &d) ? kMost : d;
}

// std::lgamma writes a variable that all threads share.
double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

fsdp::Nanos median_of_sorted(const std::vector<fsdp::Nanos>& x) {
  const std::size_t n = x.size();
  return n % 2 == 1 ? x[n / 2] : half_sum(x[n / 2 - 1], x[n / 2]);
}

// P(X < k) of a binomial with n trials and p = 1/2.
double tail_below(int n, int k) {
  double total = 0;
  for (int i = 0; i < k; ++i) {
    total += std::exp(log_gamma(n + 1.0) - log_gamma(i + 1.0) - log_gamma(n - i + 1.0) - n * std::log(2.0));
  }
  return total;
}

}  // namespace

double interval_coverage(int n, int k) { return k < 1 || 2 * k > n + 1 ? 0 : 1 - 2 * tail_below(n, k); }

int interval_rank(int n) {
  int best = 0;
  // The slack absorbs the rounding of the logarithms; no n has a coverage that close to 95 %.
  while (2 * (best + 1) <= n && interval_coverage(n, best + 1) >= 0.95 - 1e-12) ++best;
  return best;
}

SampleSummary summarize(std::vector<fsdp::Nanos> samples) {
  SampleSummary s;
  s.n = static_cast<int>(samples.size());
  if (samples.empty()) return s;
  std::sort(samples.begin(), samples.end());
  s.median = median_of_sorted(samples);
  std::vector<fsdp::Nanos> deviations;
  for (fsdp::Nanos x : samples) deviations.push_back(distance(x, s.median));
  std::sort(deviations.begin(), deviations.end());
  s.mad = median_of_sorted(deviations);
  const int k = std::max(1, interval_rank(s.n));
  s.ci_low = samples[k - 1];
  s.ci_high = samples[s.n - k];
  s.coverage = interval_coverage(s.n, k);
  const double limit = 5 * 1.4826 * static_cast<double>(s.mad);
  s.outliers = static_cast<int>(std::count_if(deviations.begin(), deviations.end(),
                                              [&](fsdp::Nanos d) { return static_cast<double>(d) > limit; }));
  return s;
}

fsdp::Nanos median(std::vector<fsdp::Nanos> times) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return median_of_sorted(times);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

fsdp::Nanos undisturbed(std::vector<fsdp::Nanos> repetitions) {
  if (repetitions.empty()) return 0;
  std::sort(repetitions.begin(), repetitions.end());
  const std::size_t quarters = repetitions.size() - 1, i = quarters / 4;
  const auto part = static_cast<fsdp::Nanos>(quarters % 4);
  if (part == 0) return repetitions[i];
  const fsdp::Nanos gap = distance(repetitions[i + 1], repetitions[i]);
  return repetitions[i] + gap / 4 * part + gap % 4 * part / 4;
}

RepeatStop repeat_decision(const RepeatPolicy& p, const std::vector<fsdp::Nanos>& samples, fsdp::Nanos spent) {
  const int n = static_cast<int>(samples.size());
  if (n >= p.max) return RepeatStop::kMax;
  const SampleSummary s = summarize(samples);
  // n <= 5 never proves the interval: 95 % is out of reach.
  if (n >= p.min && interval_rank(n) > 0 &&
      static_cast<double>(distance(s.ci_high, s.ci_low)) / 2 <= p.relative_ci * static_cast<double>(s.median)) {
    return RepeatStop::kNarrow;
  }
  return spent >= p.time && n >= 1 ? RepeatStop::kTime : RepeatStop::kContinue;
}

}  // namespace harness
