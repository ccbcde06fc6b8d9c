// From CUPTI's clock (CLOCK_REALTIME by default) to ours (CLOCK_MONOTONIC), with a bound of the error. Pure.
#pragma once
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
  // Of no samples: the identity, with no bound. The offset at a sample lies within half its width; between samples it
  // is interpolated, outside it is that of the nearest.
  explicit ClockMap(std::vector<ClockSample> samples = {});

  fsdp::Nanos to_steady(fsdp::Nanos cupti) const;
  // Half the width of the widest sample, plus half of the largest change of the offset between two neighbours: a step
  // of the clock lies somewhere between them.
  fsdp::Nanos error() const { return error_; }
  // How far the offset moved over all samples; more than the error: the clock was set or slewed meanwhile.
  fsdp::Nanos drift() const;
  const std::vector<ClockSample>& samples() const { return samples_; }

 private:
  fsdp::Nanos offset(std::size_t sample) const;

  std::vector<ClockSample> samples_;  // by CUPTI's time
  fsdp::Nanos error_ = 0;
};

// The narrowest, so that an interruption between two readings does not count. Of none: a sample of zeros.
ClockSample narrowest(const std::vector<ClockSample>& tries);

}  // namespace harness
