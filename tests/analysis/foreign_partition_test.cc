#include "harness/analysis/foreign_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "harness/analysis/conventions.h"
#include "tests/analysis/timeline.h"

namespace harness {
namespace {

using fsdp::Nanos;

struct Ops {
  std::vector<DeviceOp> ops;
  std::vector<Annotation> steps;
  std::vector<std::string> labels;
  AllocationCalls allocations;

  Ops& add(OpClass cls, Nanos begin, Nanos end, int stream, Nanos launch = kNoTime) {
    DeviceOp op;
    op.cls = cls;
    op.kind = cls == OpClass::kCopy ? OpKind::kMemcpy : OpKind::kKernel;
    op.begin = begin, op.end = end, op.stream = stream, op.launch_begin = launch, op.thread = 1;
    op.correlation = op.order = ops.size() + 1;
    ops.push_back(op);
    return *this;
  }
  ForeignPartition sweep() const {
    std::vector<DeviceOp> sorted = ops;
    std::sort(sorted.begin(), sorted.end(), [](const DeviceOp& a, const DeviceOp& b) {
      return std::tie(a.begin, a.stream, a.correlation) < std::tie(b.begin, b.stream, b.correlation);
    });
    ForeignSweep s(steps, labels, allocations);
    for (const DeviceOp& op : sorted) s.add(op);
    return s.finish();
  }
};

std::string whole(const Ops& o) { return text_of(o.sweep().whole.partition.classes); }

TEST(ForeignPartitionTest, V41ComputeOverlappedExposed) {
  Ops o;
  o.add(OpClass::kCompute, 0, 10, 7).add(OpClass::kCompute, 20, 30, 7).add(OpClass::kCommunication, 5, 25, 20);
  EXPECT_EQ(whole(o), "compute 10, overlapped 10, exposed_other 10");
}

TEST(ForeignPartitionTest, V42TwoConcurrentCollectivesCountOnceAndTheFirstToBeginPays) {
  Ops o;
  o.add(OpClass::kCommunication, 0, 10, 20).add(OpClass::kCommunication, 5, 15, 21);
  o.ops[0].unit = 1, o.ops[1].unit = 2;
  const ForeignPartition p = o.sweep();
  EXPECT_EQ(exposed(p.whole.partition.classes), 15);
  ASSERT_EQ(p.units.size(), 2u);
  EXPECT_EQ(p.units[0].exposed_ns, 10);
  EXPECT_EQ(p.units[1].exposed_ns, 5);
}

TEST(ForeignPartitionTest, V43OverlapInOneStreamCountsOnce) {
  Ops o;
  o.add(OpClass::kCompute, 0, 10, 7).add(OpClass::kCompute, 8, 12, 7);
  EXPECT_EQ(whole(o), "compute 12");
}

TEST(ForeignPartitionTest, V44AQuarterOfTheCommunicationMeetsCompute) {
  Ops o;
  o.add(OpClass::kCompute, 0, 1'000'000, 7).add(OpClass::kCommunication, 500'000, 2'500'000, 20);
  const NsysTimes t = nsys_times(o.sweep());
  EXPECT_EQ(*t.overlap_pct, 25);
}

TEST(ForeignPartitionTest, OptimizerGoesFirstAndTakesItsKernelsOutOfCompute) {
  Ops o;
  o.add(OpClass::kOptimizer, 0, 10, 7).add(OpClass::kCommunication, 5, 12, 20).add(OpClass::kCompute, 8, 14, 8);
  EXPECT_EQ(whole(o), "compute 2, overlapped 2, optimizer 10");
  EXPECT_EQ(o.sweep().whole.partition.communication_hidden, 7) << "the optimizer's kernels hide communication too";
}

TEST(ForeignPartitionTest, GapsAreExplainedByTheOperationThatEndsThem) {
  Ops o;
  o.add(OpClass::kCompute, 0, 10, 7, -5);
  o.add(OpClass::kCompute, 20, 30, 7, 14);   // launched late: 4 not issued, 6 launch
  o.add(OpClass::kCompute, 40, 50, 7, 12);   // launched long ago: dependency
  o.add(OpClass::kCompute, 60, 70, 7);       // no record: unknown
  o.add(OpClass::kCompute, 80, 90, 7, 200);  // clocks: launched "after" it began
  const ForeignPartition p = o.sweep();
  EXPECT_EQ(text_of(p.whole.partition.classes), "compute 50, host 20, idle 20");
  EXPECT_EQ(p.whole.host_not_issued, 4 + 10);
  EXPECT_EQ(p.whole.host_launch, 6);
  EXPECT_EQ(p.whole.idle_dependency, 10);
  EXPECT_EQ(p.whole.idle_unknown, 10);
  EXPECT_EQ(p.counts.before_launch, 1);
  EXPECT_EQ(p.counts.without_launch, 1);
}

TEST(ForeignPartitionTest, OfSeveralThatEndAGapTheFirstLaunchedCounts) {
  Ops o;
  o.add(OpClass::kCompute, 0, 10, 7, -5).add(OpClass::kCompute, 20, 30, 7, 18).add(OpClass::kCopy, 20, 30, 8, 12);
  EXPECT_EQ(o.sweep().whole.host_not_issued, 2);
}

TEST(ForeignPartitionTest, AllocationCallsComeFirst) {
  Ops o;
  o.add(OpClass::kCompute, 0, 10, 7, -5).add(OpClass::kCompute, 30, 40, 7, 25);
  o.allocations[1] = IntervalSet({{12, 18}, {24, 26}});
  const ForeignPartition p = o.sweep();
  EXPECT_EQ(text_of(p.whole.partition.classes), "compute 20, host 12, memory_wait 8");
  EXPECT_EQ(p.whole.host_not_issued, 8);
}

TEST(ForeignPartitionTest, TheLongestStretchWithoutModelWorkIsFound) {
  Ops o;
  o.add(OpClass::kCompute, 0, 10, 7, -5)
      .add(OpClass::kCommunication, 12, 30, 20, -4)
      .add(OpClass::kCompute, 40, 50, 7, 35);
  o.ops[1].unit = 3;
  const CriticalStretch s = o.sweep().stretch;
  EXPECT_EQ(s.begin, 10);
  EXPECT_EQ(s.end, 40);
  EXPECT_EQ(s.largest, PartitionClass::kExposedOther);
  EXPECT_EQ(s.unit, 3);
  EXPECT_EQ(sum(s.classes), 30);
}

std::string savings(const ForeignPartition& p) {
  std::string out;
  for (const Saving& s : p.whole.savings) {
    out += (out.empty() ? "" : ", ") + std::to_string(s.unit) + " " + std::to_string(s.saved_ns) + "/" +
           std::to_string(s.exposed_ns);
  }
  return out;
}

// Compute is launched at 5, into the exposed [0, 12): what lies before its launch the host would cost anyway.
TEST(ForeignSavings, WhatLiesBehindTheLaunchOfTheNextComputeCouldBeSaved) {
  Ops o;
  o.add(OpClass::kCommunication, 0, 12, 20, -5).add(OpClass::kCompute, 12, 20, 7, 5);
  o.ops[0].unit = 1;
  EXPECT_EQ(savings(o.sweep()), "1 7/12");
  o.ops[1].launch_begin = -3;
  EXPECT_EQ(savings(o.sweep()), "1 12/12");
  o.ops[1].launch_begin = 15;  // clocks, or a host that waited: nothing to gain
  EXPECT_EQ(savings(o.sweep()), "1 0/12");
}

TEST(ForeignSavings, OfComputesThatBeginTogetherTheFirstLaunchedCounts) {
  Ops o;
  o.add(OpClass::kCommunication, 0, 12, 20, -5)
      .add(OpClass::kCompute, 12, 20, 7, 9)
      .add(OpClass::kCompute, 12, 14, 8, 4)
      .add(OpClass::kCommunication, 25, 30, 20, -5)
      .add(OpClass::kCompute, 30, 31, 7, 28);
  o.ops[0].unit = 1, o.ops[3].unit = 2;
  EXPECT_EQ(savings(o.sweep()), "1 8/12, 2 2/5");
}

TEST(ForeignSavings, WithoutLaunchOrWithoutAnythingBehindItAllIsTheBound) {
  Ops o;
  o.add(OpClass::kCommunication, 0, 12, 20).add(OpClass::kCompute, 12, 20, 7).add(OpClass::kCommunication, 20, 29, 20);
  o.ops[0].unit = 1, o.ops[2].unit = 2;
  EXPECT_EQ(savings(o.sweep()), "1 12/12, 2 9/9");
}

// Two runs of kernel 1 beside communication take 30 and 40, two alone 20 and 20; kernel 2 never ran alone.
TEST(KernelSlowdown, IsTheTimeBesideCommunicationOverTheMeanAlone) {
  Ops o;
  o.add(OpClass::kCommunication, 0, 70, 20);
  o.add(OpClass::kCompute, 0, 30, 7).add(OpClass::kCompute, 30, 70, 7).add(OpClass::kCompute, 60, 65, 8);
  o.add(OpClass::kCompute, 70, 90, 7).add(OpClass::kCompute, 90, 110, 7);
  for (const std::size_t i : {1, 2, 4, 5}) o.ops[i].name = 1;
  o.ops[3].name = 2;
  const std::optional<Slowdown> s = o.sweep().slowdown;
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->kernels, 2);
  EXPECT_EQ(s->names, 1);
  EXPECT_EQ(s->under_ns, 70);
  EXPECT_DOUBLE_EQ(s->ratio(), 70.0 / 40);
}

TEST(KernelSlowdown, IsAbsentWhereNothingCanBeCompared) {
  Ops shapes;
  shapes.add(OpClass::kCompute, 0, 30, 7).add(OpClass::kCommunication, 0, 30, 20).add(OpClass::kCompute, 30, 40, 7);
  EXPECT_TRUE(shapes.sweep().slowdown.has_value());
  shapes.ops[2].shape = 5;
  EXPECT_FALSE(shapes.sweep().slowdown.has_value()) << "launched in another shape";
  Ops o;
  o.add(OpClass::kCompute, 0, 30, 7).add(OpClass::kCommunication, 40, 50, 20);
  EXPECT_FALSE(o.sweep().slowdown.has_value());
}

TEST(ForeignPartitionTest, NothingIsNothing) {
  const ForeignPartition p = Ops().sweep();
  EXPECT_EQ(sum(p.whole.partition.classes), 0);
  EXPECT_TRUE(p.steps.empty());
  EXPECT_FALSE(p.slowdown.has_value());
}

// --- against brute force, on small integers ---

Ops random_ops(std::mt19937& rng) {
  Ops o;
  const int n = 1 + static_cast<int>(rng() % 8);
  for (int i = 0; i < n; ++i) {
    const Nanos begin = static_cast<Nanos>(rng() % 40), end = begin + static_cast<Nanos>(rng() % 8);
    const auto cls = static_cast<OpClass>(rng() % 4);
    o.add(cls, begin, end, static_cast<int>(rng() % 3), rng() % 4 == 0 ? kNoTime : static_cast<Nanos>(rng() % 50) - 10);
  }
  if (rng() % 2 == 0)
    o.allocations[1] = IntervalSet({{static_cast<Nanos>(rng() % 20), static_cast<Nanos>(20 + rng() % 10)}});
  return o;
}

Partition brute_force(const Ops& o, Nanos& first, Nanos& last) {
  Partition p{};
  first = 1000, last = -1000;
  for (const DeviceOp& op : o.ops) {
    if (op.end > op.begin) first = std::min(first, op.begin), last = std::max(last, op.end);
  }
  auto runs = [&](OpClass c, Nanos t) {
    return std::any_of(o.ops.begin(), o.ops.end(),
                       [&](const DeviceOp& x) { return x.cls == c && x.begin <= t && t < x.end; });
  };
  auto busy = [&](Nanos t) {
    return std::any_of(o.ops.begin(), o.ops.end(), [&](const DeviceOp& x) { return x.begin <= t && t < x.end; });
  };
  for (Nanos t = first; t < last; ++t) {
    auto& at = p;
    auto add = [&](PartitionClass c) { ++at[static_cast<std::size_t>(c)]; };
    if (runs(OpClass::kOptimizer, t)) {
      add(PartitionClass::kOptimizer);
    } else if (runs(OpClass::kCompute, t)) {
      add(runs(OpClass::kCommunication, t) ? PartitionClass::kOverlapped : PartitionClass::kCompute);
    } else if (runs(OpClass::kCommunication, t)) {
      add(PartitionClass::kExposedOther);
    } else if (runs(OpClass::kCopy, t)) {
      add(PartitionClass::kCopy);
    } else {
      Nanos g0 = t, g1 = t;
      while (!busy(g0 - 1)) --g0;
      while (!busy(g1)) ++g1;
      Nanos launch = kNoTime;
      for (const DeviceOp& op : o.ops) {
        const bool ends_it = op.begin == g1 && op.end > op.begin && op.launch_begin != kNoTime;
        if (ends_it && (launch == kNoTime || op.launch_begin < launch)) launch = op.launch_begin;
      }
      const auto calls = o.allocations.find(1);
      if (launch != kNoTime && calls != o.allocations.end() && calls->second.contains(t)) {
        add(PartitionClass::kMemoryWait);
      } else {
        add(launch != kNoTime && launch > g0 ? PartitionClass::kHost : PartitionClass::kIdle);
      }
    }
  }
  return p;
}

TEST(ForeignInvariants, AgreesWithBruteForce) {
  std::mt19937 rng(99);
  for (int round = 0; round < 5000; ++round) {
    const Ops o = random_ops(rng);
    Nanos first, last;
    const Partition expected = brute_force(o, first, last);
    const ForeignPartition p = o.sweep();
    ASSERT_EQ(text_of(p.whole.partition.classes), text_of(expected)) << round;
    ASSERT_TRUE(first >= last || p.whole.partition.end - p.whole.partition.begin == last - first);
    const RunningTimes& t = p.whole.running;
    ASSERT_EQ(p.whole.partition.classes[static_cast<std::size_t>(PartitionClass::kOverlapped)] +
                  exposed(p.whole.partition.classes),
              t.length(kRunsCommunication, kRunsOptimizer));
    const TraceLensTimes l = tracelens_times(p);
    ASSERT_EQ(l.compute + l.exposed_communication + l.exposed_memcpy + l.idle, l.span);
  }
}

TEST(ForeignInvariants, OrderSplittingAndShiftingChangeNothing) {
  std::mt19937 rng(100);
  for (int round = 0; round < 2000; ++round) {
    const Ops o = random_ops(rng);
    const Partition expected = o.sweep().whole.partition.classes;
    Ops shuffled = o;
    std::shuffle(shuffled.ops.begin(), shuffled.ops.end(), rng);
    ASSERT_EQ(shuffled.sweep().whole.partition.classes, expected);
    Ops shifted = o;
    constexpr Nanos kShift = 1'700'000'000'000'000'000;
    for (DeviceOp& op : shifted.ops) {
      op.begin += kShift, op.end += kShift;
      if (op.launch_begin != kNoTime) op.launch_begin += kShift;
    }
    for (auto& [thread, calls] : shifted.allocations) {
      std::vector<Interval> moved = calls.intervals();
      for (Interval& i : moved) i.begin += kShift, i.end += kShift;
      calls = IntervalSet(moved);
    }
    ASSERT_EQ(shifted.sweep().whole.partition.classes, expected);
    Ops split = o;
    DeviceOp& op = split.ops[rng() % split.ops.size()];
    if (op.end - op.begin < 2) continue;
    DeviceOp rest = op;
    rest.begin = op.end = op.begin + 1;
    split.ops.push_back(rest);
    ASSERT_EQ(split.sweep().whole.partition.classes, expected);
  }
}

TEST(ForeignInvariants, WindowsTileAndColumnsAddUp) {
  std::mt19937 rng(101);
  for (int round = 0; round < 2000; ++round) {
    Ops o = random_ops(rng);
    for (int s = 0; s < 3; ++s) {
      Annotation a;
      a.begin = 15 * s, a.end = 15 * s + 15, a.kind = AnnotationKind::kStep;
      o.steps.push_back(a);
      o.labels.push_back("step " + std::to_string(s));
    }
    for (DeviceOp& op : o.ops) {
      if (op.launch_begin >= 0 && op.launch_begin < 45) op.step = static_cast<int>(op.launch_begin / 15);
    }
    const ForeignPartition p = o.sweep();
    Partition total = p.before.partition.classes;
    Nanos at = p.before.partition.end;
    for (const ForeignStep& s : p.steps) {
      // After the last work a step that launched nothing has a window of its own, which is no part of the whole.
      if (s.operations == 0 && s.partition.begin >= p.whole.partition.end) continue;
      ASSERT_EQ(s.partition.begin, at);
      at = s.partition.end;
      ASSERT_EQ(sum(s.partition.classes), s.partition.end - s.partition.begin);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += s.partition.classes[i];
    }
    ASSERT_EQ(total, p.whole.partition.classes);
  }
}

}  // namespace
}  // namespace harness
