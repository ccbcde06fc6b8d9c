// Statistics of samples: median, MAD, a distribution-free confidence interval of the median (order statistics).
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

struct SampleSummary {
  fsdp::Nanos median = 0;  // even n: mean of the middle two, rounded half to even
  fsdp::Nanos mad = 0;     // median of |x - median|, raw
  fsdp::Nanos ci_low = 0, ci_high = 0;
  double coverage = 0;  // of [ci_low, ci_high]; below 0.95 for n <= 5: then min and max
  int n = 0;
  int outliers = 0;  // |x - median| > 5 * 1.4826 * MAD; kept all the same
};
SampleSummary summarize(std::vector<fsdp::Nanos> samples);

// Even n: mean of the middle two, of times as in SampleSummary. 0 for none.
fsdp::Nanos median(std::vector<fsdp::Nanos> times);
double median(std::vector<double> values);

// What a repetition takes when nothing else disturbs it: the lower quartile, between two values in proportion, rounded
// down. Other programs only ever lengthen a repetition, and may disturb more than half of them. 0 for none.
fsdp::Nanos undisturbed(std::vector<fsdp::Nanos> repetitions);

// Largest k with coverage of [x_(k), x_(n+1-k)] >= 95 %; 0 if there is none (n <= 5).
int interval_rank(int n);
double interval_coverage(int n, int k);

// Repetition: go on until the interval is narrow, or max, or the time is spent.
struct RepeatPolicy {
  int min = 1, max = 1;
  double relative_ci = 0.02;  // half-width / median
  fsdp::Nanos time = 30'000'000'000;
};
enum class RepeatStop { kContinue, kNarrow, kMax, kTime };
RepeatStop repeat_decision(const RepeatPolicy& p, const std::vector<fsdp::Nanos>& samples, fsdp::Nanos spent);

}  // namespace harness
