#include "tests/device/device_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp/core/errors.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr Nanos kLong = 60'000'000'000, kShort = 20'000'000;
constexpr Lane kLanes[] = {Lane::kHost, Lane::kCompute, Lane::kAllGather, Lane::kReduceScatter, Lane::kAllReduce};
constexpr Lane kCommLanes[] = {Lane::kAllGather, Lane::kReduceScatter, Lane::kAllReduce};

WorkTag gather(UnitId unit) { return {SpanKind::kAllGather, unit, Pass::kForward, 256}; }

class DeviceConformance : public ::testing::TestWithParam<DeviceWorld> {
 protected:
  void SetUp() override {
    if (!GetParam().why_not.empty()) GTEST_SKIP() << GetParam().why_not;
  }
  void make(Nanos timeout = kLong) {
    bench_ = GetParam().make(timeout);
    device_ = &bench_->device();
  }
  std::unique_ptr<DeviceBench> bench_;
  Device* device_ = nullptr;
};

TEST_P(DeviceConformance, AnEventOfAnIdleLaneIsReached) {
  make();
  for (const Lane lane : kLanes) {
    device_->synchronize(device_->record(lane));
    for (const Lane waiting : kLanes) device_->wait(waiting, device_->record(lane));
  }
  device_->synchronize({});
}

TEST_P(DeviceConformance, ALaneRunsItsWorkInIssueOrder) {
  make();
  for (const Lane lane : kCommLanes) {
    std::vector<int> order;
    for (int i = 0; i < 100; ++i) bench_->put(lane, gather(i), [&order, i] { order.push_back(i); });
    device_->synchronize(device_->record(lane));
    EXPECT_THAT(order, SizeIs(100));
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

TEST_P(DeviceConformance, AnEventIsReachedWhenWhatWasIssuedBeforeItIsDone) {
  make();
  int done = 0;
  for (int i = 1; i <= 50; ++i) {
    bench_->put(Lane::kAllGather, gather(i), [&done, i] { done = i; });
    const Event event = device_->record(Lane::kAllGather);
    device_->synchronize(event);
    EXPECT_EQ(done, i);
  }
}

TEST_P(DeviceConformance, LanesWaitForEachOthersEvents) {
  make();
  for (int i = 0; i < 50; ++i) {
    for (const Lane first : kCommLanes) {
      for (const Lane second : kCommLanes) {
        std::vector<int> order;
        bench_->put(first, gather(0), [&order] { order.push_back(0); });
        device_->wait(second, device_->record(first));
        bench_->put(second, gather(1), [&order] { order.push_back(1); });
        device_->synchronize(device_->record(second));
        EXPECT_THAT(order, ElementsAre(0, 1)) << name_of(first) << ", " << name_of(second);
      }
    }
  }
}

TEST_P(DeviceConformance, TheComputeLaneAndACommLaneHandOverToEachOther) {
  make();
  std::vector<int> order;
  for (int i = 0; i < 20; ++i) {
    bench_->put(Lane::kAllGather, gather(i), [&order, i] { order.push_back(3 * i); });
    device_->wait(Lane::kCompute, device_->record(Lane::kAllGather));
    bench_->compute([&order, i] { order.push_back(3 * i + 1); });
    device_->wait(Lane::kReduceScatter, device_->record(Lane::kCompute));
    bench_->put(Lane::kReduceScatter, gather(i), [&order, i] { order.push_back(3 * i + 2); });
    device_->wait(Lane::kAllGather, device_->record(Lane::kReduceScatter), SpanKind::kMemoryWait);
  }
  device_->synchronize(device_->record(Lane::kReduceScatter));
  EXPECT_THAT(order, SizeIs(60));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(DeviceConformance, AnEventStaysGoodHoweverManyFollow) {
  make();
  int done = 0;
  bench_->put(Lane::kAllGather, gather(0), [&done] { ++done; });
  const Event old = device_->record(Lane::kAllGather);
  for (int i = 0; i < 3000; ++i) {
    bench_->put(Lane::kAllGather, gather(0), [&done] { ++done; });
    device_->wait(Lane::kCompute, device_->record(Lane::kAllGather));
  }
  device_->wait(Lane::kReduceScatter, old);
  device_->synchronize(old);
  device_->synchronize(device_->record(Lane::kCompute));
  EXPECT_EQ(done, 3001);
}

TEST_P(DeviceConformance, AnErrorOfALaneIsThrownAtTheNextWaitAndStays) {
  if (!GetParam().lanes_run) GTEST_SKIP() << "its lanes run nothing that could fail";
  make();
  bool ran_after = false;
  bench_->put_failing(Lane::kAllGather, gather(0));
  bench_->put(Lane::kAllGather, gather(1), [&ran_after] { ran_after = true; });
  const auto wait = [this] { device_->synchronize(device_->record(Lane::kAllGather)); };
  EXPECT_THAT(wait, ThrowsMessage<CommError>("[test] peer gone"));
  EXPECT_THAT(wait, ThrowsMessage<CommError>("[test] peer gone"));
  EXPECT_FALSE(ran_after);
}

TEST_P(DeviceConformance, AWaitPastTheDeadlineNamesTheWork) {
  if (!GetParam().lanes_run) GTEST_SKIP() << "its lanes cannot be late";
  make(kShort);
  bench_->hold(Lane::kAllGather, gather(7));
  EXPECT_THAT([this] { device_->synchronize(device_->record(Lane::kAllGather)); },
              ThrowsMessage<TimeoutError>(HasSubstr("waited 0.02 s for all_gather of unit 7, forward")));
  bench_->let_go(Lane::kAllGather);
}

TEST_P(DeviceConformance, StepsTileAndSpansCarryWhatWasIssued) {
  make();
  device_->set_recording(true);
  for (int i = 0; i < 3; ++i) {
    device_->begin_step(i);
    bench_->put(Lane::kAllGather, gather(4), [] {});
    device_->wait(Lane::kCompute, device_->record(Lane::kAllGather));
    device_->compute_context({SpanKind::kCompute, 4, Pass::kForward, 0});
    bench_->compute([] {});
    device_->host_context();
    device_->end_step();
  }
  const std::vector<Span> spans = device_->take_spans();
  std::vector<Span> steps, gathers;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& s = spans[i];
    if (s.kind == SpanKind::kStep) steps.push_back(s);
    if (s.kind == SpanKind::kAllGather) gathers.push_back(s);
    EXPECT_LE(s.begin, s.end);
    EXPECT_GT(s.id, 0u);
  }
  ASSERT_THAT(steps, SizeIs(3));
  ASSERT_THAT(gathers, SizeIs(3));
  EXPECT_EQ(steps[0].end, steps[1].begin);
  EXPECT_EQ(steps[1].end, steps[2].begin);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(steps[i].lane, Lane::kHost);
    EXPECT_EQ(gathers[i].lane, Lane::kAllGather);
    EXPECT_EQ(gathers[i].unit, 4);
    EXPECT_EQ(gathers[i].pass, Pass::kForward);
    EXPECT_EQ(gathers[i].bytes, 256);
    EXPECT_EQ(gathers[i].step, static_cast<int>(i));
    EXPECT_LE(gathers[i].issued, gathers[i].begin);
    EXPECT_LE(gathers[i].end, steps[i].end);
  }
}

TEST_P(DeviceConformance, NothingIsRecordedWhileOff) {
  make();
  device_->begin_step(0);
  bench_->put(Lane::kAllGather, gather(4), [] {});
  device_->compute_context({SpanKind::kCompute, 4, Pass::kForward, 0});
  device_->host_context();
  device_->end_step();
  device_->synchronize(device_->record(Lane::kAllGather));
  EXPECT_THAT(device_->take_spans(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, DeviceConformance, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fsdp::testing
