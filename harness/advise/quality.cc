#include "harness/advise/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

SampleQuality judge_samples(const std::vector<fsdp::Nanos>& samples) {
  SampleQuality q;
  q.n = static_cast<int>(samples.size());
  if (q.n == 0) return q;
  const SampleSummary s = summarize(samples);
  q.outliers = s.outliers;
  q.warmup = warmup_length(samples);
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
  if (drifted)
    out.push_back(fmt::format("the samples drift: the last third is {:.1f} % {} than the first", 100 * std::abs(drift),
                              drift > 0 ? "slower" : "faster"));
  if (outliers > 0) out.push_back(fmt::format("{} of {} samples are outliers; they are kept", outliers, n));
  return out;
}

}  // namespace harness
