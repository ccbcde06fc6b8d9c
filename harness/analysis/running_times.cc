#include "harness/analysis/running_times.h"

namespace harness {

using fsdp::Nanos;

Nanos RunningTimes::length(unsigned any, unsigned none) const {
  Nanos total = 0;
  for (unsigned s = 0; s < by_set.size(); ++s) total += (s & any) != 0 && (s & none) == 0 ? by_set[s] : 0;
  return total;
}

Nanos RunningTimes::both(unsigned a, unsigned b) const {
  Nanos total = 0;
  for (unsigned s = 0; s < by_set.size(); ++s) total += (s & a) != 0 && (s & b) != 0 ? by_set[s] : 0;
  return total;
}

}  // namespace harness
