// LaneQueue: one thread that runs work in the order in which one other thread submits it, with one error slot.
// The first exception poisons the queue: what comes after is skipped, and waiters get the exception.
// Submitting copies the callable into a ring; nothing is allocated.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "fsdp/core/span.h"
#include "fsdp/device/device.h"
#include "fsdp/device/host/wait_word.h"
#include "fsdp/device/ranges.h"

namespace fsdp {

class LaneQueue {
 public:
  // Number of a piece of work: 1 for the first, in submission order.
  using Seq = std::uint64_t;

  // What is known of a piece of work besides what it does. span.id 0: not recorded.
  struct Info {
    Lane lane = Lane::kHost;
    WorkTag tag;
    std::uint32_t span_id = 0;
    std::int32_t rank = 0, step = 0;
    Nanos issued = 0;
    bool ranged = false;  // the queue's sink is told while it runs
  };

  static constexpr std::uint32_t kCapacity = 4096;  // work submitted and not done
  static constexpr std::size_t kWorkBytes = 112;    // largest callable

  // `timeout`: how long submit() waits for room in a full ring. `ranges`: told what runs, on the queue's thread; may be
  // null.
  LaneQueue(std::string thread_name, Nanos timeout, RangeSink* ranges = nullptr);
  ~LaneQueue();  // drops what has not started, waits for what has
  LaneQueue(const LaneQueue&) = delete;
  LaneQueue& operator=(const LaneQueue&) = delete;

  // Owner's thread only. The callable runs on the queue's thread; its result is not used.
  template <class F>
  Seq submit(const Info& info, F&& work) {
    using Work = std::decay_t<F>;
    static_assert(sizeof(Work) <= kWorkBytes && alignof(Work) <= alignof(std::max_align_t));
    Task& task = claim();
    task.info = info;
    new (task.storage) Work(std::forward<F>(work));
    task.run = [](void* w) { static_cast<void>((*static_cast<Work*>(w))()); };
    task.destroy = [](void* w) { static_cast<Work*>(w)->~Work(); };
    return publish();
  }

  // Any thread. `seq` 0 is reached from the start.
  bool reached(Seq seq) const { return passed(done_.load(), seq); }
  bool poisoned() const { return poisoned_.load(std::memory_order_acquire); }
  // False when `timeout` has passed first.
  bool wait(Seq seq, Nanos timeout) const;
  void rethrow_if_poisoned() const;

  // Owner's thread only.
  Seq last_submitted() const { return submitted_count_; }
  bool idle() const { return reached(submitted_count_); }
  // Of work that is not done yet.
  const Info& info_of(Seq seq) const { return ring_[(seq - 1) % kCapacity].info; }
  // Drops what has not started and waits for what has, however long that takes.
  void cancel() noexcept;
  // Only while idle: spans of what ran, in order.
  std::vector<Span> take_spans() { return std::exchange(spans_, {}); }

 private:
  struct Task {
    Info info;
    void (*run)(void*) = nullptr;
    void (*destroy)(void*) = nullptr;
    alignas(std::max_align_t) std::byte storage[kWorkBytes];
  };

  static bool passed(std::uint32_t done, Seq seq) {
    return static_cast<std::int32_t>(done - static_cast<std::uint32_t>(seq)) >= 0;
  }
  Task& claim();
  Seq publish();
  void loop();
  void execute(Task& task);

  const std::string name_;
  const Nanos timeout_;
  RangeSink* const ranges_;
  std::unique_ptr<Task[]> ring_;
  Seq submitted_count_ = 0;  // owner's thread
  std::vector<Span> spans_;  // queue's thread until idle
  std::exception_ptr error_;
  std::atomic<bool> poisoned_{false}, dropping_{false}, stopping_{false};
  alignas(64) WaitWord<WaitScope::kThreads> submitted_;  // low bits of the last Seq submitted
  alignas(64) WaitWord<WaitScope::kThreads> done_;       // low bits of the last Seq done
  std::thread thread_;
};

}  // namespace fsdp
