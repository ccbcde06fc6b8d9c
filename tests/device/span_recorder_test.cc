#include "fsdp/device/host/span_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkTag kForward{SpanKind::kCompute, 3, Pass::kForward, 0};
constexpr WorkTag kCopy{SpanKind::kCopy, 3, Pass::kForward, 64};
constexpr WorkTag kGather{SpanKind::kAllGather, 4, Pass::kForward, 1024};

class SpanRecorderTest : public ::testing::Test {
 protected:
  SpanRecorderTest() : recorder(2) { recorder.set_on(true); }
  static std::string text(const Span& s) {
    return std::string(name_of(s.lane)) + " " + std::string(name_of(s.kind)) + " " + std::to_string(s.begin) + "-" +
           std::to_string(s.end);
  }
  std::vector<std::string> taken() {
    std::vector<std::string> out;
    for (const Span& s : recorder.take()) out.push_back(text(s));
    return out;
  }
  SpanRecorder recorder;
};

TEST_F(SpanRecorderTest, ContextsCutTheStepAndBookkeepingHasNoSpan) {
  recorder.begin_step(0, 100);
  recorder.set_context(kForward, 110);
  recorder.set_context(kCopy, 150);
  recorder.clear_context(160);
  recorder.end_step(200);
  EXPECT_THAT(taken(), ElementsAre("compute compute 110-150", "compute copy 150-160", "host step 100-200"));
}

TEST_F(SpanRecorderTest, TheContextResumesAfterAWait) {
  recorder.begin_step(0, 0);
  recorder.set_context(kForward, 0);
  recorder.add_wait(SpanKind::kWait, kGather, 77, 10, 30);
  recorder.end_step(50);
  const std::vector<Span> spans = recorder.take();
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(text(spans[0]), "compute compute 0-10");
  EXPECT_EQ(text(spans[1]), "host wait 10-30");
  EXPECT_THAT(spans[1].waits, ElementsAre(77u));
  EXPECT_EQ(spans[1].unit, 4);
  EXPECT_EQ(text(spans[2]), "compute compute 30-50");
  EXPECT_EQ(spans[2].unit, 3);
  EXPECT_EQ(text(spans[3]), "host step 0-50");
}

TEST_F(SpanRecorderTest, AStepThatFollowsAnotherBeginsWhereThatOneEnded) {
  recorder.begin_step(0, 10);
  recorder.end_step(20);
  ASSERT_TRUE(recorder.tiled_begin().has_value());
  EXPECT_EQ(*recorder.tiled_begin(), 20);
  recorder.begin_step(1, *recorder.tiled_begin());
  recorder.end_step(35);
  const std::vector<Span> spans = recorder.take();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].end, spans[1].begin);
  EXPECT_EQ(spans[1].step, 1);
  EXPECT_FALSE(recorder.tiled_begin().has_value());  // what was taken is closed
}

TEST_F(SpanRecorderTest, EmptySpansAreNotKept) {
  recorder.begin_step(0, 10);
  recorder.set_context(kForward, 10);
  recorder.set_context(kCopy, 10);
  recorder.end_step(20);
  EXPECT_THAT(taken(), ElementsAre("compute copy 10-20", "host step 10-20"));
}

TEST_F(SpanRecorderTest, SpansCarryRankStepAndIdsInIssueOrder) {
  recorder.begin_step(5, 0);
  recorder.set_context(kForward, 1);
  const std::uint32_t lane_id = recorder.next_id();
  recorder.set_context(kCopy, 2);
  recorder.end_step(3);
  const std::vector<Span> spans = recorder.take();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_LT(spans[0].id, lane_id);
  EXPECT_GT(spans[1].id, lane_id);
  EXPECT_LT(spans[2].id, spans[0].id);  // a step is issued before what is in it
  for (const Span& s : spans) {
    EXPECT_EQ(s.rank, 2);
    EXPECT_EQ(s.step, 5);
    EXPECT_EQ(s.issued, s.begin);
  }
}

TEST_F(SpanRecorderTest, OffForgetsTheStepInProgress) {
  recorder.begin_step(0, 10);
  recorder.set_on(false);
  EXPECT_FALSE(recorder.in_step());
  recorder.end_step(20);
  EXPECT_THAT(taken(), IsEmpty());
}

}  // namespace
}  // namespace fsdp
