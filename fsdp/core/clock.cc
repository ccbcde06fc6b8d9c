#include "fsdp/core/clock.h"

#include <cerrno>
#include <ctime>

namespace fsdp {
namespace {
constexpr Nanos kSecond = 1'000'000'000;
}

Nanos steady_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Nanos{t.tv_sec} * kSecond + t.tv_nsec;
}

std::int64_t wall_seconds() { return std::time(nullptr); }

void sleep_until(Nanos deadline) {
  const timespec t{deadline / kSecond, deadline % kSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

}  // namespace fsdp
