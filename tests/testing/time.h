// Time in tests that run beside other work: processor time where a test limits work, patience where it waits for an
// event.
#pragma once
#include <sys/resource.h>

#include "fsdp/core/types.h"

namespace testing_support {

// For what must happen at last: a safety net that no load reaches, not a limit.
inline constexpr fsdp::Nanos kPatience = 60'000'000'000;

// How much longer work may take in a build with a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSlowdown = 20;
#else
inline constexpr int kSlowdown = 1;
#endif

// Processor time of this process (RUSAGE_SELF) or of its children that have ended (RUSAGE_CHILDREN), all threads.
inline fsdp::Nanos processor_time(int who = RUSAGE_SELF) {
  rusage used{};
  getrusage(who, &used);
  const auto nanos = [](const timeval& t) { return fsdp::Nanos{t.tv_sec} * 1'000'000'000 + t.tv_usec * 1'000; };
  return nanos(used.ru_utime) + nanos(used.ru_stime);
}

}  // namespace testing_support
