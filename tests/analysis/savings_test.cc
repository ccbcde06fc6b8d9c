#include "harness/analysis/savings.h"

#include <gtest/gtest.h>

#include "tests/analysis/timeline.h"
#include "tests/schedule/scripted_world.h"

namespace harness {
namespace {

using fsdp::BackwardPrefetch;
using fsdp::Lane;
using fsdp::Nanos;
using fsdp::Pass;
using fsdp::SchedulerOptions;
using fsdp::SpanKind;
using fsdp::testing::Costs;
using fsdp::testing::ScriptedWorld;

constexpr Pass kF = Pass::kForward, kB = Pass::kBackward;

SchedulerOptions mode(int forward, BackwardPrefetch backward) {
  SchedulerOptions o;
  o.forward_prefetch = forward;
  o.backward_prefetch = backward;
  o.max_inflight = fsdp::auto_gate(forward, backward, 1);
  return o;
}

// "all_gather 0 forward 2/2": what would be saved of what is exposed, in order.
std::string text_of(const std::vector<Saving>& savings) {
  std::string out;
  for (const Saving& s : savings) {
    out += (out.empty() ? "" : ", ") + std::string(fsdp::name_of(s.collective)) + " " + std::to_string(s.unit) + " " +
           std::string(fsdp::name_of(s.pass)) + " " + std::to_string(s.saved_ns) + "/" + std::to_string(s.exposed_ns);
  }
  return out;
}

std::string of_steady_step(std::vector<Costs> costs, const SchedulerOptions& o) {
  ScriptedWorld w(std::move(costs), o);
  w.steady();
  return text_of(savings_of(w.spans, partition_steps(w.spans).at(0)));
}

// Compute is the bottleneck: each wait that is left is saved whole.
TEST(Savings, WhereComputeIsTheBottleneckAllThatIsExposedIsSaved) {
  EXPECT_EQ(of_steady_step(ScriptedWorld::equal(3, {2, 5, 10, 3}), mode(1, BackwardPrefetch::kPre)),
            "reduce_scatter 0 backward 3/3, all_gather 0 forward 2/2, all_gather 2 backward 2/2");
}

// One communicator, nothing prefetched (V29 in backward): a gather that queues behind a reduce costs 5, and hiding it
// saves 5, for the next reduce then queues behind nothing.
TEST(Savings, WithoutPrefetchEachGatherIsWorthWhatItHoldsUp) {
  EXPECT_EQ(of_steady_step(ScriptedWorld::equal(3, {2, 5, 10, 3}), mode(0, BackwardPrefetch::kNone)),
            "all_gather 0 backward 5/5, all_gather 1 backward 5/5, reduce_scatter 0 backward 3/3, "
            "all_gather 0 forward 2/2, all_gather 1 forward 2/2, all_gather 2 forward 2/2, all_gather 2 backward 2/2");
}

// Communication is the bottleneck: units of forward 5 behind gathers of 7. The first gather is exposed for 7, but the
// second compute waits for the second gather at 14 whether the first began at 0 or at 7.
TEST(Savings, WhereTheWireIsTheBottleneckHidingOneGatherSavesNothing) {
  Timeline t;
  const auto g0 = t.all_gather(0, 0, 7, kF), g1 = t.all_gather(1, 7, 14, kF), g2 = t.all_gather(2, 14, 21, kF);
  t.compute(0, 7, 12, kF, {g0});
  t.compute(1, 14, 19, kF, {g1});
  t.compute(2, 21, 26, kF, {g2});
  t.step(26);
  EXPECT_EQ(text_of(savings_of(t.spans, t.partition())),
            "all_gather 2 forward 2/2, all_gather 0 forward 0/7, all_gather 1 forward 0/2");
}

// The last gather's compute is the only one that nothing else holds up; with n units the others save nothing.
TEST(Savings, ClosedFormForManyUnits) {
  for (const int n : {2, 5, 40}) {
    Timeline t;
    std::vector<std::uint32_t> gathers;
    for (int i = 0; i < n; ++i) gathers.push_back(t.all_gather(i, 9 * i, 9 * (i + 1), kF));
    for (int i = 0; i < n; ++i) t.compute(i, 9 * (i + 1), 9 * (i + 1) + 4, kF, {gathers[static_cast<std::size_t>(i)]});
    t.step(9 * n + 4);
    const std::vector<Saving> s = savings_of(t.spans, t.partition());
    ASSERT_EQ(s.size(), static_cast<std::size_t>(n));
    EXPECT_EQ(s[0].unit, n - 1);
    EXPECT_EQ(s[0].saved_ns, n > 1 ? 5 : 9) << "the compute before it ends 5 earlier than the gather";
    for (std::size_t i = 1; i < s.size(); ++i) EXPECT_EQ(s[i].saved_ns, 0);
  }
}

// The compute behind the gather is issued at 8 of 10: only 2 are the gather's.
TEST(Savings, ALateHostKeepsItsShare) {
  Timeline t;
  const auto g = t.all_gather(0, 0, 10, kF);
  t.add(SpanKind::kCompute, Lane::kCompute, 0, kF, 10, 15, 8, {g});
  t.step(15);
  EXPECT_EQ(text_of(savings_of(t.spans, t.partition())), "all_gather 0 forward 2/2");
}

// A host that computes itself and blocks on a gather is ahead by what it need not wait, and issues the next gather
// earlier.
TEST(Savings, AHostThatComputesPullsLaterGathersForward) {
  Timeline t;
  const auto g0 = t.all_gather(0, 0, 10, kF);
  t.add(SpanKind::kWait, Lane::kHost, 0, kF, 1, 10, 1, {g0});
  t.add(SpanKind::kCompute, Lane::kCompute, 0, kF, 10, 14, 10, {});
  const auto g1 = t.add(SpanKind::kAllGather, Lane::kAllGather, 1, kF, 14, 20, 14, {});
  t.add(SpanKind::kWait, Lane::kHost, 1, kF, 14, 20, 14, {g1});
  t.add(SpanKind::kCompute, Lane::kCompute, 1, kF, 20, 24, 20, {});
  t.step(24);
  // Without the first wait: compute [1, 5), the second gather is issued at 5 but the lane is busy until 10: [10, 16),
  // compute [16, 20). Without the second: compute [14, 18), and the step ends there.
  EXPECT_EQ(text_of(savings_of(t.spans, t.partition())), "all_gather 1 forward 6/6, all_gather 0 forward 4/9");
}

TEST(Savings, ABarrierLastsAsLongAsItDid) {
  Timeline t;
  const auto g = t.all_gather(0, 0, 4, kF);
  t.add(SpanKind::kWait, Lane::kHost, 0, kF, 0, 4, 0, {g});
  t.add(SpanKind::kCompute, Lane::kCompute, 0, kF, 4, 6, 4, {});
  t.add(SpanKind::kWait, Lane::kHost, fsdp::kNoUnit, Pass::kNone, 6, 9, 6, {});
  t.step(9);
  EXPECT_EQ(text_of(savings_of(t.spans, t.partition())), "all_gather 0 forward 4/4");
}

TEST(Savings, WithoutExposureThereIsNothingToSave) {
  Timeline t;
  t.all_gather(0, 0, 5, kF);
  t.compute(0, 0, 10, kF);
  t.step(10);
  EXPECT_TRUE(savings_of(t.spans, t.partition()).empty());
}

// Whatever the schedule: never more than is exposed, so together never more than the exposed time.
TEST(Savings, NeverMoreThanExposed) {
  for (const int prefetch : {0, 1, 2}) {
    for (const BackwardPrefetch b : {BackwardPrefetch::kNone, BackwardPrefetch::kPre, BackwardPrefetch::kPost}) {
      ScriptedWorld w({{1, 5, 9, 2}, {9, 3, 4, 8}, {2, 2, 2, 2}, {20, 5, 10, 1}, {3, 30, 50, 40}}, mode(prefetch, b));
      w.steady();
      const StepPartition p = partition_steps(w.spans).at(0);
      Nanos claimed = 0, exposed_ns = 0;
      for (const Saving& s : savings_of(w.spans, p)) {
        EXPECT_LE(s.saved_ns, s.exposed_ns);
        claimed += s.saved_ns;
        exposed_ns += s.exposed_ns;
      }
      EXPECT_EQ(exposed_ns, exposed(p.classes));
      EXPECT_GT(claimed, 0);
    }
  }
}

}  // namespace
}  // namespace harness
