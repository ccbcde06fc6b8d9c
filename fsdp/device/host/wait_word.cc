#include "fsdp/device/host/wait_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "fsdp/core/clock.h"

namespace fsdp::detail {
namespace {
static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

int flags_of(WaitScope scope) { return scope == WaitScope::kThreads ? FUTEX_PRIVATE_FLAG : 0; }
}  // namespace

bool futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Nanos deadline, WaitScope scope) {
  constexpr Nanos kSecond = 1'000'000'000;
  const timespec until{deadline / kSecond, deadline % kSecond};
  // The bitset form takes an absolute CLOCK_MONOTONIC time, so early wakes do not stretch the deadline.
  const long rc =
      syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | flags_of(scope), expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  return rc == 0 || errno != ETIMEDOUT;
}

void futex_wake_all(const std::atomic<std::uint32_t>& word, WaitScope scope) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE | flags_of(scope), INT_MAX, nullptr, nullptr, 0);
}

Nanos deadline_after(Nanos timeout) { return steady_now() + timeout; }

}  // namespace fsdp::detail
