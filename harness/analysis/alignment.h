// One clock for several ranks, from the collectives that they share: all ranks leave a collective together, up to the
// jitter of its end. Gives offsets with an uncertainty, and what each collective cost in waiting and in transfer.
// Without a common collective there is no alignment, and no guess.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/analysis/device_trace.h"

namespace harness {

// One collective as one rank saw it, absolute time of the rank's clock.
struct Sighting {
  fsdp::Nanos begin = 0, end = 0;
  fsdp::SpanKind kind = fsdp::SpanKind::kOtherCollective;
  std::string group;           // empty: unknown
  std::int64_t sequence = -1;  // in its group; -1: unknown, then its place among those of its kind counts
};

struct RankClock {
  int rank = 0;
  fsdp::Nanos offset = 0;       // subtract from the rank's time at `at` to get the first rank's
  double drift_ppm = 0;         // of the rank's clock against the first rank's
  fsdp::Nanos uncertainty = 0;  // largest residual, at least the resolution of the stamps; of the first, fitted to: 0
  fsdp::Nanos at = 0;           // first rank's time to which `offset` belongs
};

// One collective over all ranks, on the first rank's clock.
struct AlignedCollective {
  fsdp::SpanKind kind = fsdp::SpanKind::kOtherCollective;
  std::vector<fsdp::Nanos> arrivals, waits;  // by rank: begin; latest begin - begin
  fsdp::Nanos transfer = 0;                  // shortest duration
  fsdp::Nanos start_skew = 0, end_skew = 0;
  int last = 0;  // index of the rank that came last
};

struct Alignment {
  bool aligned = false;
  std::string reason;  // why not
  std::vector<RankClock> clocks;
  std::vector<AlignedCollective> collectives;  // in time order
  fsdp::Nanos uncertainty = 0;                 // of a statement about two ranks: the sum of the two largest
  // Skews below the uncertainty are unknown and left out.
  std::optional<fsdp::Nanos> mean_skew, median_skew;
  std::optional<int> straggler;  // rank with the least total wait
  std::int64_t straggler_last = 0;
};

// By rank, in the order of `clocks`: how long it waited for the last one to come. Waits below the uncertainty are
// unknown and left out.
std::vector<fsdp::Nanos> waits_of_ranks(const Alignment& a);

// `ranks` and `sightings` in the same order; a rank's sightings in order of begin. `resolution`: of the stamps.
// `one_clock`: all ranks stamped with the same clock. It is kept, `resolution` its uncertainty, where it shows each
// collective on all ranks at once at some instant, however unlike the ends are.
Alignment align(const std::vector<int>& ranks, const std::vector<std::vector<Sighting>>& sightings,
                fsdp::Nanos resolution, bool one_clock = false);

}  // namespace harness
