// Work on several threads whose results are taken on one, in order.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace harness {

// work(0), ..., work(n - 1) on up to `threads` threads; take(i, result) on the calling thread, for i in order, while
// later ones run. At most 2 * threads results are held. take returns false: nothing more is begun, what runs is waited
// for and dropped. An exception of work(i) or take is thrown here, after the same. Waits as long as work does: work
// bounds itself.
template <class Result>
void ordered_parallel(std::size_t n, std::size_t threads, const std::function<Result(std::size_t)>& work,
                      const std::function<bool(std::size_t, Result)>& take) {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::size_t, std::variant<Result, std::exception_ptr>> done;
  std::size_t next = 0, taken = 0;
  bool stop = false;

  const auto worker = [&] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stop || next >= n || next < taken + 2 * threads; });
      if (stop || next >= n) return;
      const std::size_t i = next++;
      lock.unlock();
      std::variant<Result, std::exception_ptr> outcome;
      try {
        outcome.template emplace<0>(work(i));
      } catch (...) {
        outcome.template emplace<1>(std::current_exception());
      }
      lock.lock();
      done.emplace(i, std::move(outcome));
      changed.notify_all();
    }
  };
  std::vector<std::thread> pool;
  for (std::size_t t = 0; t < std::min(threads, n); ++t) pool.emplace_back(worker);

  std::exception_ptr failure;
  for (std::size_t i = 0; i < n && !failure; ++i) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done.count(i) > 0; });
    auto outcome = std::move(done.extract(i).mapped());
    taken = i + 1;
    changed.notify_all();
    lock.unlock();
    try {
      if (outcome.index() == 1) std::rethrow_exception(std::get<1>(outcome));
      if (!take(i, std::move(std::get<0>(outcome)))) break;
    } catch (...) {
      failure = std::current_exception();
    }
  }
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  for (std::thread& t : pool) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace harness
