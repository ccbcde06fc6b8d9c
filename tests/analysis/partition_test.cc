#include "harness/analysis/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "fsdp/core/errors.h"
#include "tests/analysis/timeline.h"

namespace harness {
namespace {

using fsdp::Lane;
using fsdp::Nanos;
using fsdp::Pass;
using fsdp::SpanKind;

constexpr Pass kF = Pass::kForward, kB = Pass::kBackward;

Timeline forward_with_prefetch() {  // V25
  Timeline t;
  const auto g0 = t.all_gather(0, 0, 2, kF), g1 = t.all_gather(1, 2, 4, kF), g2 = t.all_gather(2, 4, 6, kF);
  t.compute(0, 2, 7, kF, {g0});
  t.compute(1, 7, 12, kF, {g1});
  t.compute(2, 12, 17, kF, {g2});
  return t.step(17);
}

Timeline backward_none() {  // V29
  Timeline t;
  const auto g2 = t.all_gather(2, 0, 2, kB);
  t.compute(2, 2, 12, kB, {g2});
  t.reduce_scatter(2, 12, 15);
  const auto g1 = t.all_gather(1, 15, 17, kB);
  t.compute(1, 17, 27, kB, {g1});
  t.reduce_scatter(1, 27, 30);
  const auto g0 = t.all_gather(0, 30, 32, kB);
  t.compute(0, 32, 42, kB, {g0});
  t.reduce_scatter(0, 42, 45);
  return t.step(45);
}

Timeline backward_pre(Nanos g, Nanos r, Nanos b, const std::vector<Nanos>& begins, Nanos end) {
  Timeline t;
  const auto g2 = t.all_gather(2, begins[0], begins[0] + g, kB), g1 = t.all_gather(1, begins[1], begins[1] + g, kB);
  t.compute(2, begins[2], begins[2] + b, kB, {g2});
  t.reduce_scatter(2, begins[3], begins[3] + r);
  const auto g0 = t.all_gather(0, begins[4], begins[4] + g, kB);
  t.compute(1, begins[5], begins[5] + b, kB, {g1});
  t.reduce_scatter(1, begins[6], begins[6] + r);
  t.compute(0, begins[7], begins[7] + b, kB, {g0});
  t.reduce_scatter(0, begins[8], begins[8] + r);
  return t.step(end);
}

double overlap_percent(const StepPartition& p) {
  return 100.0 * static_cast<double>(p.communication_hidden) / static_cast<double>(p.communication);
}

TEST(PartitionOfSchedules, V25OnlyTheFirstAllGatherIsExposedInForward) {
  const StepPartition p = forward_with_prefetch().partition();
  EXPECT_EQ(text_of(p.classes), "compute 11, overlapped 4, exposed_all_gather_forward 2");
  EXPECT_NEAR(overlap_percent(p), 66.67, 0.005);
}

TEST(PartitionOfSchedules, ForwardWithoutPrefetchExposesEveryAllGather) {
  Timeline t;
  for (int i = 0; i < 3; ++i) {
    const auto g = t.all_gather(i, 7 * i, 7 * i + 2, kF);
    t.compute(i, 7 * i + 2, 7 * i + 7, kF, {g});
  }
  const StepPartition p = t.step(21).partition();
  EXPECT_EQ(text_of(p.classes), "compute 15, exposed_all_gather_forward 6");
  EXPECT_EQ(p.communication_hidden, 0);
}

TEST(PartitionOfSchedules, V27FirstAllGatherAndLastReduceScatterAreExposedInBackward) {
  const StepPartition p = backward_pre(2, 3, 10, {0, 2, 2, 12, 15, 12, 22, 22, 32}, 35).partition();
  EXPECT_EQ(text_of(p.classes), "compute 20, overlapped 10, exposed_all_gather_backward 2, exposed_reduce_scatter 3");
  EXPECT_EQ(p.communication, 15);
  EXPECT_NEAR(overlap_percent(p), 66.67, 0.005);
}

TEST(PartitionOfSchedules, V29ChargesTheCollectiveThatIsWaitedForNotTheOneThatRuns) {
  const StepPartition p = backward_none().partition();
  EXPECT_EQ(text_of(p.classes), "compute 30, exposed_all_gather_backward 12, exposed_reduce_scatter 3");
  EXPECT_EQ(p.communication_hidden, 0);
  std::map<fsdp::UnitId, CollectiveDetail> gathers;
  for (const CollectiveDetail& c : p.collectives) {
    if (c.kind == SpanKind::kAllGather) gathers[c.unit] = c;
  }
  EXPECT_EQ(gathers[1].exposed, 5);
  EXPECT_EQ(gathers[1].queued_behind, 3);
  EXPECT_EQ(gathers[0].exposed, 5);
  EXPECT_EQ(gathers[0].queued_behind, 3);
  EXPECT_EQ(gathers[2].exposed, 2);
}

TEST(PartitionOfSchedules, V30WithoutGathersOnlyTheLastReduceScatterIsExposed) {
  Timeline t;
  for (int i = 0; i < 3; ++i) {
    t.compute(2 - i, 10 * i, 10 * i + 10, kB);
    t.reduce_scatter(2 - i, 10 * i + 10, 10 * i + 13);
  }
  EXPECT_EQ(text_of(t.step(33).partition().classes), "compute 24, overlapped 6, exposed_reduce_scatter 3");
}

TEST(PartitionOfSchedules, V33CommunicationBoundForward) {
  Timeline t;
  for (int i = 0; i < 3; ++i) {
    const auto g = t.all_gather(i, 7 * i, 7 * i + 7, kF);
    t.compute(i, 7 * i + 7, 7 * i + 12, kF, {g});
  }
  const StepPartition p = t.step(26).partition();
  EXPECT_EQ(text_of(p.classes), "compute 5, overlapped 10, exposed_all_gather_forward 11");
  EXPECT_NEAR(overlap_percent(p), 47.62, 0.005);
}

TEST(PartitionOfSchedules, V34CommunicationBoundBackward) {
  const StepPartition p = backward_pre(6, 7, 10, {0, 6, 6, 16, 23, 16, 29, 29, 39}, 46).partition();
  EXPECT_EQ(text_of(p.classes), "compute 7, overlapped 23, exposed_all_gather_backward 9, exposed_reduce_scatter 7");
  EXPECT_NEAR(overlap_percent(p), 58.97, 0.005);
}

TEST(PartitionOfSchedules, V32ABlockedHostIssuesLateAndExplicitPrefetchHelps) {
  Timeline implicit;
  for (int i = 0; i < 3; ++i) {
    const auto g = implicit.all_gather(i, 7 * i, 7 * i + 2, kF);
    implicit.span(g).issued = 7 * i;
    const auto f = implicit.compute(i, 7 * i + 2, 7 * i + 7, kF, {g});
    implicit.span(f).issued = 7 * i;
  }
  EXPECT_EQ(text_of(implicit.step(21).partition().classes), "compute 15, exposed_all_gather_forward 6");

  Timeline explicit_one;
  const auto g0 = explicit_one.all_gather(0, 0, 2, kF), g1 = explicit_one.all_gather(1, 2, 4, kF);
  explicit_one.compute(0, 2, 7, kF, {g0});
  const auto g2 = explicit_one.all_gather(2, 7, 9, kF);
  explicit_one.span(g2).issued = 7;
  explicit_one.span(explicit_one.compute(1, 7, 12, kF, {g1})).issued = 7;
  explicit_one.span(explicit_one.compute(2, 12, 17, kF, {g2})).issued = 12;
  EXPECT_EQ(text_of(explicit_one.step(17).partition().classes),
            "compute 11, overlapped 4, exposed_all_gather_forward 2");
}

std::vector<Nanos> slot_delays(const StepPartition& p) {
  std::vector<Nanos> out;
  for (const CollectiveDetail& c : p.collectives) out.push_back(c.slot_delay);
  return out;
}

TEST(PartitionOfSchedules, V35SlotsDelayGathersAndCostOnlyWhereOneBecomesExposed) {
  Timeline one;
  std::uint32_t previous = 0;
  for (int i = 0; i < 4; ++i) {
    const auto g = one.all_gather(i, 7 * i, 7 * i + 2, kF);
    if (previous != 0) one.span(g).waits = {previous};
    previous = one.compute(i, 7 * i + 2, 7 * i + 7, kF, {g});
  }
  const StepPartition p = one.step(28).partition();
  EXPECT_EQ(text_of(p.classes), "compute 20, exposed_all_gather_forward 8");
  EXPECT_EQ(slot_delays(p), (std::vector<Nanos>{0, 5, 5, 5}));

  Timeline two;
  const auto g0 = two.all_gather(0, 0, 2, kF), g1 = two.all_gather(1, 2, 4, kF);
  const auto f0 = two.compute(0, 2, 7, kF, {g0});
  const auto g2 = two.all_gather(2, 7, 9, kF);
  two.span(g2).waits = {f0};
  const auto f1 = two.compute(1, 7, 12, kF, {g1});
  const auto g3 = two.all_gather(3, 12, 14, kF);
  two.span(g3).waits = {f1};
  two.compute(2, 12, 17, kF, {g2});
  two.compute(3, 17, 22, kF, {g3});
  const StepPartition q = two.step(22).partition();
  EXPECT_EQ(text_of(q.classes), "compute 14, overlapped 6, exposed_all_gather_forward 2");
  EXPECT_EQ(slot_delays(q), (std::vector<Nanos>{0, 0, 3, 3}));
  EXPECT_NEAR(overlap_percent(q), 75, 1e-9);
}

TEST(PartitionRules, V39AHostInTheLimiterIsMemoryWait) {
  Timeline t;
  t.compute(0, 0, 5, kF);
  t.add(SpanKind::kMemoryWait, Lane::kHost, 1, kF, 5, 9, 5, {});
  t.add(SpanKind::kCompute, Lane::kCompute, 1, kF, 9, 12, 9, {});
  EXPECT_EQ(text_of(t.step(12).partition().classes), "compute 8, memory_wait 4");
}

TEST(PartitionRules, V40ACopyInAheadOfTheAwaitedGatherIsCopyThenExposed) {
  Timeline t;
  const auto copy = t.add(SpanKind::kCopy, Lane::kAllGather, 3, kF, 0, 2, 0, {});
  const auto g = t.all_gather(3, 2, 6, kF);
  t.span(g).waits = {copy};
  t.compute(3, 6, 10, kF, {g});
  const StepPartition p = t.step(10).partition();
  EXPECT_EQ(text_of(p.classes), "compute 4, exposed_all_gather_forward 4, copy 2");
  const auto row = std::find_if(p.details.begin(), p.details.end(),
                                [](const PartitionDetail& d) { return d.cls == PartitionClass::kCopy; });
  EXPECT_EQ(row->unit, 3);
}

// V41, as own spans: the one collective is charged for the hole that the compute lane waits in.
TEST(PartitionRules, V41ComputeOverlappedExposed) {
  Timeline t;
  const auto n = t.all_gather(0, 5, 25, kF);
  t.compute(0, 0, 10, kF);
  t.compute(0, 20, 30, kF, {n});
  const StepPartition p = t.step(30).partition();
  EXPECT_EQ(text_of(p.classes), "compute 10, overlapped 10, exposed_all_gather_forward 10");
  EXPECT_EQ(overlap_percent(p), 50);
}

TEST(PartitionRules, ACollectiveInFlightThatNobodyWaitsForIsNotExposed) {
  Timeline t;
  t.all_gather(0, 0, 10, kF);
  t.span(t.compute(1, 4, 20, kF)).issued = 4;
  EXPECT_EQ(text_of(t.step(20).partition().classes), "compute 10, overlapped 6, host 4");
}

TEST(PartitionRules, ALateIssuedCollectiveIsHostOfItsUnit) {
  Timeline t;
  const auto g = t.all_gather(2, 5, 8, kF);
  t.span(g).issued = 3;
  t.compute(2, 8, 10, kF, {g});
  const StepPartition p = t.step(10).partition();
  // [3,5): issued, not begun, nothing ahead of it: not provable.
  EXPECT_EQ(text_of(p.classes), "compute 2, exposed_all_gather_forward 3, host 3, idle 2");
  EXPECT_EQ(p.pieces.front().unit, 2);
}

TEST(PartitionRules, ALaneThatWaitsForASlotIsMemoryWait) {
  Timeline t;
  t.add(SpanKind::kMemoryWait, Lane::kAllGather, 1, kF, 0, 4, 0, {});
  const auto g = t.all_gather(1, 4, 6, kF);
  t.compute(1, 6, 8, kF, {g});
  EXPECT_EQ(text_of(t.step(8).partition().classes), "compute 2, exposed_all_gather_forward 2, memory_wait 4");
}

TEST(PartitionRules, TheComputeLaneWaitingForASlotIsMemoryWait) {
  Timeline t;
  const auto r = t.reduce_scatter(3, 0, 6);
  t.add(SpanKind::kMemoryWait, Lane::kCompute, 1, kB, 2, 6, 0, {r});
  t.compute(1, 0, 2, kB);
  t.compute(1, 6, 8, kB, {r});
  EXPECT_EQ(text_of(t.step(8).partition().classes), "compute 2, overlapped 2, memory_wait 4");
}

TEST(PartitionRules, AHostBlockedOnACollectiveIsExposedAndOnABarrierIdle) {
  Timeline t;
  const auto g = t.all_gather(0, 1, 6, kF);
  t.add(SpanKind::kWait, Lane::kHost, 0, kF, 2, 7, 2, {g});
  t.add(SpanKind::kCompute, Lane::kCompute, 0, kF, 7, 9, 7, {});
  t.add(SpanKind::kWait, Lane::kHost, fsdp::kNoUnit, Pass::kNone, 9, 12, 9, {});
  t.add(SpanKind::kCompute, Lane::kCompute, 1, kF, 13, 15, 13, {});
  EXPECT_EQ(text_of(t.step(15).partition().classes), "compute 4, exposed_all_gather_forward 5, host 3, idle 3");
}

TEST(PartitionRules, OptimizerGoesFirstAndCopyOnTheComputeLaneIsCopy) {
  Timeline t;
  t.reduce_scatter(0, 0, 4);
  t.add(SpanKind::kCopy, Lane::kCompute, 0, kB, 0, 3, 0, {});
  t.add(SpanKind::kOptimizer, Lane::kCompute, fsdp::kNoUnit, Pass::kOptimizer, 3, 8, 0, {});
  const StepPartition p = t.step(8).partition();
  EXPECT_EQ(text_of(p.classes), "copy 3, optimizer 5");
  EXPECT_EQ(p.communication, 4);
  EXPECT_EQ(p.communication_hidden, 1) << "the optimizer hides communication too";
}

TEST(PartitionRules, AnAllReduceBehindItsReduceScatterIsChargedToTheReduceScatterWhileThatRuns) {
  Timeline t;
  t.compute(0, 0, 2, kB);
  const auto r = t.reduce_scatter(0, 2, 5);
  const auto a = t.add(SpanKind::kAllReduce, Lane::kAllReduce, 0, kB, 5, 9, 0, {r});
  t.add(SpanKind::kOptimizer, Lane::kCompute, fsdp::kNoUnit, Pass::kOptimizer, 9, 10, 0, {a});
  // One communicator as far as the trace shows: the all-reduce is queued behind the reduce-scatter, exposed either way.
  EXPECT_EQ(exposed(t.step(10).partition().classes), 7);
}

TEST(PartitionRules, LaunchLatencyIsHost) {
  Timeline t;
  const auto first = t.compute(0, 0, 3, kF);
  t.compute(1, 5, 7, kF, {first});
  EXPECT_EQ(text_of(t.step(7).partition().classes), "compute 5, host 2");
}

TEST(PartitionWindows, NoStepIsAnErrorAndOverlappingStepsToo) {
  Timeline t;
  t.compute(0, 0, 3, kF);
  EXPECT_THROW(t.partition(), fsdp::Error);
  t.step(5).step(9, 4);
  EXPECT_THROW(t.partition(), fsdp::Error);
}

TEST(PartitionWindows, AGatherAcrossABoundaryCountsInBothStepsOnce) {
  Timeline t;
  t.compute(0, 0, 10, kF);
  t.all_gather(1, 8, 14, kF);
  t.compute(0, 10, 20, kF);
  t.step(10).step(20, 10);
  const std::vector<StepPartition> p = partition_steps(t.spans);
  EXPECT_EQ(text_of(p[0].classes), "compute 8, overlapped 2");
  EXPECT_EQ(text_of(p[1].classes), "compute 6, overlapped 4");
}

TEST(PartitionWindows, MedianIsTheLowerMiddle) {
  Timeline t;
  t.step(10).step(40, 10).step(60, 40).step(100, 60);  // 10, 30, 20, 40
  EXPECT_EQ(median_step(partition_steps(t.spans)), 2u);
}

// --- invariants, on random schedules ---

Timeline random_timeline(std::mt19937& rng) {
  Timeline t;
  Nanos wire = 0, lane = 0, host = 0;
  const int units = 3 + static_cast<int>(rng() % 6);
  for (int i = 0; i < units; ++i) {
    host += static_cast<Nanos>(rng() % 4);
    const bool reduce = rng() % 3 == 0;
    const Nanos begin = std::max(host, wire) + static_cast<Nanos>(rng() % 2);
    wire = begin + static_cast<Nanos>(rng() % 7);
    const auto g = reduce ? t.reduce_scatter(i, begin, wire) : t.all_gather(i, begin, wire, rng() % 2 ? kF : kB);
    t.span(g).issued = host;
    if (rng() % 4 == 0) t.add(SpanKind::kMemoryWait, Lane::kHost, i, kF, host, host + 2, host, {});
    if (rng() % 4 == 0) t.add(SpanKind::kWait, Lane::kHost, i, kF, host + 2, host + 4, host + 2, {g});
    host += static_cast<Nanos>(rng() % 3);
    const Nanos ready = std::max(lane, rng() % 5 == 0 ? host : wire);
    lane = ready + static_cast<Nanos>(rng() % 9);
    const SpanKind kind =
        rng() % 6 == 0 ? SpanKind::kCopy : (rng() % 8 == 0 ? SpanKind::kOptimizer : SpanKind::kCompute);
    t.add(kind, Lane::kCompute, i, kF, ready, lane, std::min(host, ready), {g});
  }
  const Nanos end = std::max({lane, wire, host}) + 1;
  return t.step(end / 2).step(end, end / 2);
}

std::vector<Partition> classes_of(const std::vector<fsdp::Span>& spans) {
  std::vector<Partition> out;
  for (const StepPartition& s : partition_steps(spans)) out.push_back(s.classes);
  return out;
}

TEST(PartitionInvariants, ClassesSumToTheStepAndDetailsAndPiecesToTheClasses) {
  std::mt19937 rng(7);
  for (int round = 0; round < 2000; ++round) {
    const Timeline t = random_timeline(rng);
    for (const StepPartition& s : partition_steps(t.spans)) {
      ASSERT_EQ(sum(s.classes), s.end - s.begin);
      Partition from_details{}, from_pieces{};
      for (const PartitionDetail& d : s.details) from_details[static_cast<int>(d.cls)] += d.ns;
      Nanos at = s.begin;
      for (const PartitionPiece& p : s.pieces) {
        ASSERT_EQ(p.begin, at);
        at = p.end;
        from_pieces[static_cast<int>(p.cls)] += p.end - p.begin;
      }
      ASSERT_EQ(from_details, s.classes);
      ASSERT_EQ(from_pieces, s.classes);
      ASSERT_GE(*std::min_element(s.classes.begin(), s.classes.end()), 0);
      ASSERT_LE(s.communication_hidden, s.communication);
      Nanos charged = 0;
      for (const CollectiveDetail& c : s.collectives) charged += c.exposed;
      ASSERT_EQ(charged, exposed(s.classes));
    }
  }
}

TEST(PartitionInvariants, OrderSplittingAndShiftingChangeNothing) {
  std::mt19937 rng(11);
  for (int round = 0; round < 1000; ++round) {
    const Timeline t = random_timeline(rng);
    const std::vector<Partition> expected = classes_of(t.spans);

    std::vector<fsdp::Span> shuffled = t.spans;
    std::shuffle(shuffled.begin(), shuffled.end(), rng);
    ASSERT_EQ(classes_of(shuffled), expected);

    std::vector<fsdp::Span> shifted = t.spans;
    for (fsdp::Span& s : shifted) {
      s.begin += 1'700'000'000'000'000'000;
      s.end += 1'700'000'000'000'000'000;
      s.issued += 1'700'000'000'000'000'000;
    }
    ASSERT_EQ(classes_of(shifted), expected);

    std::vector<fsdp::Span> split = t.spans;
    const std::size_t i = rng() % split.size();
    if (split[i].lane != Lane::kCompute || split[i].end - split[i].begin < 2) continue;
    fsdp::Span second = split[i];
    second.id = 1000;
    second.begin = split[i].end = split[i].begin + 1;
    split.push_back(second);
    ASSERT_EQ(classes_of(split), expected);
  }
}

TEST(UnitMetricsTest, CountsWhereACollectiveBeginsAndSplitsExposedFromHidden) {
  const Timeline t = backward_pre(2, 3, 10, {0, 2, 2, 12, 15, 12, 22, 22, 32}, 35);
  std::vector<fsdp::Span> spans = t.spans;
  for (fsdp::Span& s : spans) s.bytes = is_collective(s.kind) ? 100 : 0;
  const std::vector<UnitMetrics> m = unit_metrics(spans, partition_steps(spans).at(0));
  ASSERT_EQ(m.size(), 3u);
  EXPECT_EQ(m[2].unit, 2);
  EXPECT_EQ(m[2].all_gathers, 1);
  EXPECT_EQ(m[2].reduce_scatters, 1);
  EXPECT_EQ(m[2].all_gather_bytes, 100);
  EXPECT_EQ(m[2].exposed_ns, 2);
  EXPECT_EQ(m[2].hidden_ns, 3);
  EXPECT_EQ(m[0].exposed_ns, 3);
  EXPECT_EQ(m[0].hidden_ns, 2);
  EXPECT_EQ(m[1].exposed_ns, 0);
  EXPECT_EQ(m[1].compute_ns, 10);
  EXPECT_EQ(m[1].reduce_scatter_ns, 3);
}

}  // namespace
}  // namespace harness
