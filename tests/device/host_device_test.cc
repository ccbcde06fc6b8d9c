#include "fsdp/device/host/host_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr Nanos kMillisecond = 1'000'000;
constexpr Lane kCommLanes[] = {Lane::kAllGather, Lane::kReduceScatter, Lane::kAllReduce};

WorkTag gather(UnitId unit) { return {SpanKind::kAllGather, unit, Pass::kForward, 256}; }
WorkTag compute(UnitId unit) { return {SpanKind::kCompute, unit, Pass::kForward, 0}; }

// Work that holds its lane until released.
class Gate {
 public:
  auto work() {
    return [state = state_] {
      state->entered.set_value();
      state->open.get_future().wait();
      return Nanos{0};
    };
  }
  void wait_until_entered() { state_->entered.get_future().wait(); }
  void open() { state_->open.set_value(); }

 private:
  struct State {
    std::promise<void> entered, open;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(HostDevice, OneChannelRunsAllLanesInIssueOrder) {
  HostDevice device({});
  std::vector<int> order;
  for (int i = 0; i < 300; ++i) device.submit(kCommLanes[i % 3], gather(i), [&order, i] { order.push_back(i); });
  device.drain();
  ASSERT_THAT(order, SizeIs(300));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(HostDevice, TheComputeLaneIsTheCallerAndItsEventsAreReached) {
  HostDevice device({});
  EXPECT_FALSE(device.record(Lane::kCompute).pending());
  EXPECT_FALSE(device.record(Lane::kHost).pending());
  EXPECT_FALSE(device.record(Lane::kAllGather).pending());  // nothing issued yet
}

TEST(HostDevice, AnEventCoversTheWorkIssuedToItsLaneOnly) {
  HostDevice device({.shared_channel = false});
  Gate gate;
  bool gathered = false;
  device.submit(Lane::kReduceScatter, gather(0), gate.work());
  device.submit(Lane::kAllGather, gather(1), [&gathered] { gathered = true; });
  device.wait(Lane::kCompute, device.record(Lane::kAllGather));
  EXPECT_TRUE(gathered);
  EXPECT_TRUE(device.record(Lane::kReduceScatter).pending());
  gate.open();
  device.synchronize(device.record(Lane::kReduceScatter));
  EXPECT_TRUE(device.idle());
}

TEST(HostDevice, ALaneWaitsForAnEventOfAnotherThread) {
  HostDevice device({.shared_channel = false});
  Gate gate;
  std::vector<int> order;
  device.submit(Lane::kReduceScatter, gather(0), gate.work());
  device.submit(Lane::kReduceScatter, gather(0), [&order] { order.push_back(0); });
  device.wait(Lane::kAllGather, device.record(Lane::kReduceScatter));
  device.submit(Lane::kAllGather, gather(1), [&order] { order.push_back(1); });
  gate.open();
  device.drain();
  EXPECT_THAT(order, ElementsAre(0, 1));
}

TEST(HostDevice, AnErrorPoisonsTheLaneAndIsThrownAtTheNextWait) {
  HostDevice device({});
  bool ran_after = false;
  device.submit(Lane::kAllGather, gather(0), []() -> Nanos { throw CommError("[test] peer gone"); });
  device.submit(Lane::kAllGather, gather(1), [&ran_after] { ran_after = true; });
  const Event event = device.record(Lane::kAllGather);
  ASSERT_TRUE(event.pending());
  EXPECT_THAT([&] { device.wait(Lane::kCompute, event); }, ThrowsMessage<CommError>("[test] peer gone"));
  EXPECT_FALSE(ran_after);
  // It stays poisoned: recording again does not hide the error.
  EXPECT_THROW(device.wait(Lane::kCompute, device.record(Lane::kAllGather)), CommError);
  EXPECT_THROW(device.drain(), CommError);
}

TEST(HostDevice, AnErrorSpreadsToALaneThatWaitsForThePoisonedOne) {
  HostDevice device({.shared_channel = false});
  device.submit(Lane::kReduceScatter, gather(0), []() -> Nanos { throw CommError("[test] peer gone"); });
  device.wait(Lane::kAllReduce, device.record(Lane::kReduceScatter));
  device.submit(Lane::kAllReduce, gather(0), [] { return Nanos{0}; });
  EXPECT_THROW(device.synchronize(device.record(Lane::kAllReduce)), CommError);
}

TEST(HostDevice, AWaitPastTheDeadlineNamesTheWork) {
  HostDevice device({.timeout = 20 * kMillisecond});
  Gate gate;
  device.submit(Lane::kAllGather, gather(7), gate.work());
  EXPECT_THAT([&] { device.wait(Lane::kCompute, device.record(Lane::kAllGather)); },
              ThrowsMessage<TimeoutError>(HasSubstr("waited 0.02 s for all_gather of unit 7, forward")));
  gate.open();
}

TEST(HostDevice, CancelDropsWhatHasNotStarted) {
  HostDevice device({});
  Gate gate;
  int ran = 0;
  device.submit(Lane::kAllGather, gather(0), gate.work());
  for (int i = 0; i < 10; ++i) device.submit(Lane::kAllGather, gather(1), [&ran] { ++ran; });
  gate.wait_until_entered();
  std::thread opener([&] { gate.open(); });
  device.cancel();
  opener.join();
  EXPECT_TRUE(device.idle());
  EXPECT_LE(ran, 10);  // none if cancel() came before the gate opened; never a torn state
  device.submit(Lane::kAllGather, gather(2), [&ran] { ran = 100; });
  device.drain();
  EXPECT_EQ(ran, 100);
}

TEST(HostDevice, TheRingHoldsMoreWorkThanItHasSlots) {
  HostDevice device({});
  std::uint64_t sum = 0;
  const std::uint64_t n = 3 * LaneQueue::kCapacity;
  for (std::uint64_t i = 1; i <= n; ++i) device.submit(Lane::kAllGather, gather(0), [&sum, i] { sum += i; });
  device.drain();
  EXPECT_EQ(sum, n * (n + 1) / 2);
}

class HostDeviceRecording : public ::testing::Test {
 protected:
  HostDeviceRecording() : device({.rank = 1}) { device.set_recording(true); }
  void step(int number) {
    device.begin_step(number);
    device.submit(Lane::kAllGather, gather(0), [] { return Nanos{0}; });
    device.wait(Lane::kCompute, device.record(Lane::kAllGather));
    device.compute_context(compute(0));
    Gate gate;
    device.submit(Lane::kReduceScatter, {SpanKind::kReduceScatter, 0, Pass::kBackward, 64}, gate.work());
    gate.wait_until_entered();
    std::thread opener([&] { gate.open(); });
    device.wait(Lane::kCompute, device.record(Lane::kReduceScatter), SpanKind::kMemoryWait);
    opener.join();
    device.compute_context({SpanKind::kOptimizer, kNoUnit, Pass::kOptimizer, 0});
    device.host_context();
    device.end_step();
  }
  HostDevice device;
};

TEST_F(HostDeviceRecording, StepsTileAndSpansLieInsideTheirStep) {
  for (int i = 0; i < 3; ++i) step(i);
  const std::vector<Span> spans = device.take_spans();
  std::vector<Span> steps;
  for (const Span& s : spans) {
    EXPECT_EQ(s.rank, 1);
    if (s.kind == SpanKind::kStep) steps.push_back(s);
  }
  ASSERT_THAT(steps, SizeIs(3));
  EXPECT_EQ(steps[0].end, steps[1].begin);
  EXPECT_EQ(steps[1].end, steps[2].begin);
  std::vector<Nanos> host_time(3, 0);
  Nanos previous_end = 0;
  for (const Span& s : spans) {
    if (s.kind == SpanKind::kStep) continue;
    const Span& window = steps[static_cast<std::size_t>(s.step)];
    EXPECT_GE(s.begin, window.begin);
    EXPECT_LE(s.end, window.end);
    EXPECT_LE(s.issued, s.begin);
    if (is_collective(s.kind)) continue;
    EXPECT_GE(s.begin, previous_end);  // one thread: its spans do not overlap
    previous_end = s.end;
    host_time[static_cast<std::size_t>(s.step)] += s.end - s.begin;
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LE(host_time[i], steps[i].end - steps[i].begin);
}

TEST_F(HostDeviceRecording, AWaitNamesTheSpanOfTheWorkBehindTheEvent) {
  std::vector<Span> spans;
  const auto find = [&](SpanKind kind) {
    return std::find_if(spans.begin(), spans.end(), [kind](const Span& s) { return s.kind == kind; });
  };
  // A step whose reduce-scatter ends before the host comes to wait for it has no such wait.
  for (int i = 0; i < 1000 && find(SpanKind::kMemoryWait) == spans.end(); ++i) {
    step(i);
    spans = device.take_spans();
  }
  const auto reduce = find(SpanKind::kReduceScatter), memory_wait = find(SpanKind::kMemoryWait);
  ASSERT_NE(memory_wait, spans.end());
  ASSERT_NE(reduce, spans.end());
  EXPECT_EQ(reduce->lane, Lane::kReduceScatter);
  EXPECT_EQ(reduce->bytes, 64);
  EXPECT_EQ(memory_wait->lane, Lane::kHost);
  EXPECT_THAT(memory_wait->waits, ElementsAre(reduce->id));
  EXPECT_EQ(memory_wait->unit, 0);
  EXPECT_EQ(memory_wait->pass, Pass::kBackward);
}

TEST_F(HostDeviceRecording, IdsAreUniqueAndInIssueOrder) {
  for (int i = 0; i < 5; ++i) step(i);
  const std::vector<Span> spans = device.take_spans();
  for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_LT(spans[i - 1].id, spans[i].id);
}

TEST_F(HostDeviceRecording, NothingIsRecordedWhileOff) {
  device.set_recording(false);
  step(0);
  EXPECT_THAT(device.take_spans(), SizeIs(0));
  device.set_recording(true);
  step(1);
  EXPECT_EQ(device.take_spans().front().id, 1u);
}

}  // namespace
}  // namespace fsdp
