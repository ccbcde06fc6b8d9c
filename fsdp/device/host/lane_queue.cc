#include "fsdp/device/host/lane_queue.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace fsdp {
namespace {
// A worker without work, and cancel(), wait for as long as it takes.
constexpr Nanos kUnlimited = std::numeric_limits<Nanos>::max() / 4;

// As sched_setattr(2) takes it.
struct SchedulerAttributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime, deadline, period;
};

// The thread sleeps most of the time and has little to do when it wakes, while its rank computes on the same cores: a
// short slice lets it run at once instead of at the end of the other's. Linux 6.12 and later; earlier ones ignore it.
void ask_for_short_slices() {
  constexpr std::uint64_t kShortest = 100'000;  // ns
  SchedulerAttributes a{};
  if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != 0) return;
  a.size = sizeof a;
  a.runtime = kShortest;
  syscall(SYS_sched_setattr, 0, &a, 0);
}
}  // namespace

LaneQueue::LaneQueue(std::string thread_name, Nanos timeout, RangeSink* ranges)
    : name_(std::move(thread_name)), timeout_(timeout), ranges_(ranges), ring_(new Task[kCapacity]), thread_([this] {
        loop();
      }) {}

LaneQueue::~LaneQueue() {
  cancel();
  stopping_.store(true, std::memory_order_release);
  submitted_.add(1);
  thread_.join();
}

LaneQueue::Task& LaneQueue::claim() {
  if (submitted_count_ >= kCapacity && !wait(submitted_count_ + 1 - kCapacity, timeout_)) {
    throw TimeoutError("[host device] lane thread " + name_ + " holds " + std::to_string(kCapacity) +
                       " pieces of work and finished none within the timeout; look for a rank that hangs");
  }
  return ring_[submitted_count_ % kCapacity];
}

LaneQueue::Seq LaneQueue::publish() {
  ++submitted_count_;
  submitted_.store(static_cast<std::uint32_t>(submitted_count_));
  return submitted_count_;
}

bool LaneQueue::wait(Seq seq, Nanos timeout) const {
  return done_.wait([seq](std::uint32_t done) { return passed(done, seq); }, timeout);
}

void LaneQueue::rethrow_if_poisoned() const {
  if (poisoned()) std::rethrow_exception(error_);
}

void LaneQueue::cancel() noexcept {
  dropping_.store(true, std::memory_order_release);
  wait(submitted_count_, kUnlimited);
  dropping_.store(false, std::memory_order_release);
}

void LaneQueue::loop() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // the emulated wire sleeps to the microsecond on this thread
  ask_for_short_slices();
  for (std::uint32_t next = 0;; ++next) {
    submitted_.wait([next](std::uint32_t submitted) { return submitted != next; }, kUnlimited);
    if (stopping_.load(std::memory_order_acquire)) return;
    execute(ring_[next % kCapacity]);
    done_.store(next + 1);
  }
}

void LaneQueue::execute(Task& task) {
  if (!poisoned() && !dropping_.load(std::memory_order_acquire)) {
    const Nanos begin = task.info.span_id != 0 ? steady_now() : 0;
    const ScopedRange range(task.info.ranged ? ranges_ : nullptr, task.info.tag, task.info.step);
    try {
      task.run(task.storage);
    } catch (...) {
      error_ = std::current_exception();
      poisoned_.store(true, std::memory_order_release);
    }
    if (const Info& i = task.info; i.span_id != 0) {
      spans_.push_back({i.span_id,
                        i.rank,
                        i.step,
                        i.lane,
                        i.tag.kind,
                        i.tag.unit,
                        i.tag.pass,
                        i.issued,
                        begin,
                        steady_now(),
                        i.tag.bytes,
                        {}});
    }
  }
  task.destroy(task.storage);
}

}  // namespace fsdp
