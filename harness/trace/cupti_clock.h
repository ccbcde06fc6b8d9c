// From CUPTI's clock (CLOCK_REALTIME by default) to ours (CLOCK_MONOTONIC), with a bound of the error. Pure.
#pragma once
#include <optional>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

// One reading of CUPTI's clock between two of ours.
struct ClockSample {
  fsdp::Nanos before = 0, cupti = 0, after = 0;
  fsdp::Nanos width() const { return after - before; }
};

class ClockMap {
 public:
  // Of no samples: the identity, with no bound. A sample holds the offset between its two ends. Where one offset agrees
  // with all of them, it is that one (the middle of those that do), and durations are kept exactly; else a clock was
  // slewed or set: the offset is interpolated between samples and outside it is that of the nearest.
  explicit ClockMap(std::vector<ClockSample> samples = {});

  fsdp::Nanos to_steady(fsdp::Nanos cupti) const;
  // With one offset: half of the range that agrees. Else half the width of the widest sample, plus half of the largest
  // change of the offset between two neighbours: a step of the clock lies somewhere between them.
  fsdp::Nanos error() const { return error_; }
  // How far the offset moved over all samples; 0 with one offset.
  fsdp::Nanos drift() const;
  const std::vector<ClockSample>& samples() const { return samples_; }

 private:
  fsdp::Nanos offset(std::size_t sample) const;

  std::vector<ClockSample> samples_;  // by CUPTI's time
  std::optional<fsdp::Nanos> constant_;
  fsdp::Nanos error_ = 0;
};

// The narrowest, so that an interruption between two readings does not count. Of none: a sample of zeros.
ClockSample narrowest(const std::vector<ClockSample>& tries);

}  // namespace harness
