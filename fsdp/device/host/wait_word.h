// WaitWord: a 32-bit word in memory that threads, or processes over one mapping, wait on: a short spin, then a futex
// with a deadline. Zeroed memory is a valid WaitWord, so it can live in a fresh mapping.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "fsdp/core/types.h"

namespace fsdp {

enum class WaitScope : std::uint8_t { kThreads, kProcesses };

namespace detail {
// Sleeps while `word` holds `expected`, until woken or until `deadline` (steady clock); false at the deadline. May wake
// early.
bool futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Nanos deadline, WaitScope scope);
void futex_wake_all(const std::atomic<std::uint32_t>& word, WaitScope scope) noexcept;
Nanos deadline_after(Nanos timeout);

inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}
}  // namespace detail

template <WaitScope kScope>
class WaitWord {
 public:
  std::uint32_t load() const { return value_.load(std::memory_order_acquire); }

  // Changes publish what the caller wrote before and wake whoever sleeps on the word.
  void store(std::uint32_t v) { value_.store(v, std::memory_order_seq_cst), wake(); }
  void add(std::uint32_t n) { value_.fetch_add(n, std::memory_order_seq_cst), wake(); }
  void set_bits(std::uint32_t bits) { value_.fetch_or(bits, std::memory_order_seq_cst), wake(); }

  // Returns true once `reached(value)` holds, false when `timeout` has passed since the call went to sleep.
  // No clock is read unless it has to sleep.
  template <class Reached>
  bool wait(Reached reached, Nanos timeout) const {
    if (reached(load())) return true;
    if (spin(reached)) return true;
    const Nanos deadline = detail::deadline_after(timeout);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool in_time = true, done = false;
    while (true) {
      const std::uint32_t v = value_.load(std::memory_order_seq_cst);
      done = reached(v);
      if (done || !in_time) break;
      in_time = detail::futex_wait(value_, v, deadline, kScope);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return done;
  }

 private:
  // Pauses before sleeping, 10 to 40 ns each. Ranks share few cores, and a spinning waiter may hold the core that the
  // awaited thread needs: spinning is kept up only where it has helped.
  static constexpr std::uint32_t kFewestSpins = 16, kMostSpins = 128;

  template <class Reached>
  bool spin(Reached reached) const {
    const std::uint32_t spins = std::clamp(spins_.load(std::memory_order_relaxed), kFewestSpins, kMostSpins);
    for (std::uint32_t i = 0; i < spins; ++i) {
      detail::pause_core();
      if (!reached(load())) continue;
      spins_.store(2 * spins, std::memory_order_relaxed);
      return true;
    }
    spins_.store(spins / 2, std::memory_order_relaxed);
    return false;
  }

  void wake() const noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) detail::futex_wake_all(value_, kScope);
  }

  std::atomic<std::uint32_t> value_{0};
  mutable std::atomic<std::uint32_t> sleepers_{0}, spins_{0};
};

}  // namespace fsdp
