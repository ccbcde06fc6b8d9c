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
  // Each sample bounds the offset between the two clocks from both sides. When one offset agrees with all samples, the
  // map adds the middle of those that agree, and durations stay exact. Otherwise a clock was slewed or set: the map
  // interpolates the offset between samples and uses the nearest sample's outside them. Without samples the map is the
  // identity and has no bound.
  explicit ClockMap(std::vector<ClockSample> samples = {});

  fsdp::Nanos to_steady(fsdp::Nanos cupti) const;
  // Bounds the error of to_steady(). With one offset it is half of the range of offsets that agree. Otherwise it is
  // half the width of the widest sample plus half of the largest change of the offset between two neighbouring samples,
  // because a step of the clock lies somewhere between them.
  fsdp::Nanos error() const { return error_; }
  // Says how far the offset moved over all samples; it is 0 with one offset.
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
