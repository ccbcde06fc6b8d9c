// What samples say about themselves: a warm-up that was too short, a drift, outliers. Nothing is removed; it is told.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

// From `at` on the samples lie on another level.
struct LevelShift {
  int at = 0;
  fsdp::Nanos before = 0, after = 0;  // medians of the two levels
};

struct SampleQuality {
  int n = 0;
  int warmup = 0;                  // leading samples that stand out above all that follows; at most a third of them
  double drift = 0;                // median of the last third / median of the first third - 1
  bool drifted = false;            // |drift| is wider than the whole interval of the median, and above 1 %
  std::vector<LevelShift> shifts;  // at most three; a drift has none
  int outliers = 0;                // further than 5 robust sigmas from the median, of their level where levels shift
  std::vector<std::string> notes() const;
};

// In the order in which they were taken.
SampleQuality judge_samples(const std::vector<fsdp::Nanos>& samples);

// Change points: the split that ranks tell apart best (Pettitt 1979), then the same in both parts. Empty where the
// parts drift themselves, where a step is below 1 %, and below 20 samples.
std::vector<LevelShift> level_shifts(const std::vector<fsdp::Nanos>& samples);

// Leading values above the median of the rest by more than 5 robust sigmas of the rest (and 1 %), at most n / 3.
int warmup_length(const std::vector<fsdp::Nanos>& samples);

}  // namespace harness
