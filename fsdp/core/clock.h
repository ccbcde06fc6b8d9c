// The one place that reads a clock.
#pragma once
#include "fsdp/core/types.h"

namespace fsdp {

// Monotonic, the same for all processes of one machine (CLOCK_MONOTONIC).
Nanos steady_now();
// Seconds since 1970, for records that people read.
std::int64_t wall_seconds();
// Holds the calling thread, not a core, until steady_now() >= deadline.
void sleep_until(Nanos deadline);

}  // namespace fsdp
