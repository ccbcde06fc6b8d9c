// Exact timelines on the virtual clock, in integer nanoseconds. The vectors V21 to V36 are numbered as in
// tests/README.md.
#include <gtest/gtest.h>

#include "tests/schedule/scripted_world.h"

namespace fsdp::testing {
namespace {

SchedulerOptions options(int forward, BackwardPrefetch mode, GateLimit gate = {GateLimit::Kind::kNone, 0},
                         bool own = false, int slots = 2) {
  SchedulerOptions o;
  o.forward_prefetch = forward;
  o.backward_prefetch = mode;
  o.max_inflight = gate;
  o.own_reduce_scatter_communicator = own;
  o.reduce_scatter_slots = slots;
  return o;
}
SchedulerOptions usual() { return options(1, BackwardPrefetch::kPre, auto_gate(1, BackwardPrefetch::kPre, 1)); }
constexpr Costs kVectors{2, 5, 10, 3};
constexpr Interval at(Nanos b, Nanos e) { return {b, e}; }

TEST(SchedulerTimeline, V26ForwardExplicit) {
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), options(1, BackwardPrefetch::kPre));
  w.steady();
  EXPECT_EQ(w.order(Pass::kForward, true), "AG0 AG1 F0 AG2 F1 F2");
  EXPECT_EQ(w.gather(0, Pass::kForward), at(0, 2));
  EXPECT_EQ(w.gather(1, Pass::kForward), at(2, 4));
  EXPECT_EQ(w.gather(2, Pass::kForward), at(4, 6));
  EXPECT_EQ(w.compute(0, Pass::kForward), at(2, 7));
  EXPECT_EQ(w.compute(2, Pass::kForward), at(12, 17));
  EXPECT_EQ(w.forward_time(), 17);
}

TEST(SchedulerTimeline, V25ForwardImplicitNeedsAHostThatRunsAhead) {
  SchedulerOptions o = options(0, BackwardPrefetch::kPre);
  o.demand_waits_for_compute = false;
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), o);
  w.steady();
  EXPECT_EQ(w.order(Pass::kForward, true), "AG0 F0 AG1 F1 AG2 F2");
  EXPECT_EQ(w.forward_time(), 17);
}

TEST(SchedulerTimeline, ForwardWithoutPrefetchOverlapsNothing) {
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), options(0, BackwardPrefetch::kNone));
  w.steady();
  EXPECT_EQ(w.gather(1, Pass::kForward), at(7, 9));
  EXPECT_EQ(w.compute(1, Pass::kForward), at(9, 14));
  EXPECT_EQ(w.gather(2, Pass::kForward), at(14, 16));
  EXPECT_EQ(w.forward_time(), 21);
}

TEST(SchedulerTimeline, V27BackwardPre) {
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), usual());
  w.steady();
  EXPECT_EQ(w.order(Pass::kBackward, true), "AG2 AG1 B2 RS2 AG0 B1 RS1 B0 RS0");
  EXPECT_EQ(w.order(Pass::kBackward, false), "AG2 AG1 RS2 AG0 RS1 RS0");
  EXPECT_EQ(w.gather(2, Pass::kBackward), at(0, 2));
  EXPECT_EQ(w.gather(1, Pass::kBackward), at(2, 4));
  EXPECT_EQ(w.compute(2, Pass::kBackward), at(2, 12));
  EXPECT_EQ(w.reduce(2), at(12, 15));
  EXPECT_EQ(w.gather(0, Pass::kBackward), at(15, 17));
  EXPECT_EQ(w.compute(1, Pass::kBackward), at(12, 22));
  EXPECT_EQ(w.reduce(1), at(22, 25));
  EXPECT_EQ(w.compute(0, Pass::kBackward), at(22, 32));
  EXPECT_EQ(w.reduce(0), at(32, 35));
  EXPECT_EQ(w.backward_time(), 35);
}

TEST(SchedulerTimeline, V28BackwardPostHasTheSameCollectivesAndTimes) {
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), options(1, BackwardPrefetch::kPost, {GateLimit::Kind::kUnits, 2}));
  w.steady();
  EXPECT_EQ(w.order(Pass::kBackward, true), "AG2 B2 AG1 RS2 B1 AG0 RS1 B0 RS0");
  EXPECT_EQ(w.order(Pass::kBackward, false), "AG2 AG1 RS2 AG0 RS1 RS0");
  EXPECT_EQ(w.gather(1, Pass::kBackward), at(2, 4));
  EXPECT_EQ(w.backward_time(), 35);
}

TEST(SchedulerTimeline, V29BackwardNone) {
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), options(1, BackwardPrefetch::kNone));
  w.steady();
  EXPECT_EQ(w.order(Pass::kBackward, true), "AG2 B2 RS2 AG1 B1 RS1 AG0 B0 RS0");
  EXPECT_EQ(w.reduce(2), at(12, 15));
  EXPECT_EQ(w.gather(1, Pass::kBackward), at(15, 17));
  EXPECT_EQ(w.compute(1, Pass::kBackward), at(17, 27));
  EXPECT_EQ(w.gather(0, Pass::kBackward), at(30, 32));
  EXPECT_EQ(w.backward_time(), 45);
}

TEST(SchedulerTimeline, V30KeptParametersNeedNoGatherInBackward) {
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), usual());
  for (auto& t : w.traits()) t.reshard_after_forward = false;
  w.steady();
  EXPECT_EQ(w.order(Pass::kBackward, true), "B2 RS2 B1 RS1 B0 RS0");
  EXPECT_EQ(w.reduce(2), at(10, 13));
  EXPECT_EQ(w.backward_time(), 33);
}

TEST(SchedulerTimeline, V27WithTheLastUnitKept) {
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), usual());
  w.traits()[2].reshard_after_forward = false;
  w.host_blocks_in_forward = true;  // else the host, infinitely ahead, starts AG1 under the forward already
  w.steady();
  EXPECT_EQ(w.gather(1, Pass::kBackward), at(0, 2));
  EXPECT_EQ(w.compute(2, Pass::kBackward), at(0, 10));
  EXPECT_EQ(w.gather(0, Pass::kBackward), at(13, 15));
  EXPECT_EQ(w.backward_time(), 33);
}

TEST(SchedulerTimeline, V31TwoCommunicators) {
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors),
                  options(1, BackwardPrefetch::kPre, {GateLimit::Kind::kNone, 0}, true));
  w.steady();
  EXPECT_EQ(w.gather(0, Pass::kBackward), at(4, 6));
  EXPECT_EQ(w.backward_time(), 35);
}

TEST(SchedulerTimeline, V31bNoneOverlapsIfTheHostRunsAhead) {
  SchedulerOptions o = options(1, BackwardPrefetch::kNone, {GateLimit::Kind::kNone, 0}, true);
  o.demand_waits_for_compute = false;
  ScriptedWorld w(ScriptedWorld::equal(3, kVectors), o);
  w.host_blocks_in_forward = true;  // the pass begins with nothing under way
  w.steady();
  EXPECT_EQ(w.gather(1, Pass::kBackward), at(2, 4));
  EXPECT_EQ(w.gather(0, Pass::kBackward), at(4, 6));
  EXPECT_EQ(w.backward_time(), 35);
}

TEST(SchedulerTimeline, V32AHostThatBlocksLosesImplicitOverlapButNotExplicit) {
  SchedulerOptions implicit = options(0, BackwardPrefetch::kPre);
  implicit.demand_waits_for_compute = false;
  ScriptedWorld a(ScriptedWorld::equal(3, kVectors), implicit), b(ScriptedWorld::equal(3, kVectors), usual());
  a.host_blocks_in_forward = b.host_blocks_in_forward = true;
  a.steady(), b.steady();
  EXPECT_EQ(a.gather(1, Pass::kForward), at(7, 9));
  EXPECT_EQ(a.forward_time(), 21);
  EXPECT_EQ(b.gather(1, Pass::kForward), at(2, 4));
  EXPECT_EQ(b.gather(2, Pass::kForward), at(7, 9));
  EXPECT_EQ(b.forward_time(), 17);
}

TEST(SchedulerTimeline, V33CommunicationBoundForward) {
  ScriptedWorld w(ScriptedWorld::equal(3, {7, 5, 10, 3}), options(1, BackwardPrefetch::kPre));
  w.steady();
  EXPECT_EQ(w.gather(2, Pass::kForward), at(14, 21));
  EXPECT_EQ(w.forward_time(), 26);
}

TEST(SchedulerTimeline, V34CommunicationBoundBackward) {
  const Costs c{6, 5, 10, 7};
  ScriptedWorld one(ScriptedWorld::equal(3, c), options(1, BackwardPrefetch::kPre)),
      two(ScriptedWorld::equal(3, c), options(1, BackwardPrefetch::kPre, {GateLimit::Kind::kNone, 0}, true)),
      none(ScriptedWorld::equal(3, c), options(1, BackwardPrefetch::kNone));
  one.steady(), two.steady(), none.steady();
  EXPECT_EQ(one.gather(0, Pass::kBackward), at(23, 29));
  EXPECT_EQ(one.backward_time(), 46);
  EXPECT_EQ(two.gather(0, Pass::kBackward), at(12, 18));
  EXPECT_EQ(two.reduce(1), at(26, 33));
  EXPECT_EQ(two.backward_time(), 43);
  EXPECT_EQ(none.backward_time(), 69);
}

TEST(SchedulerTimeline, V35SlotsDelayThePrefetchNeverTheCompute) {
  const std::vector<Nanos> ends{28, 22, 22, 22};
  for (int slots = 1; slots <= 4; ++slots) {
    ScriptedWorld w(ScriptedWorld::equal(4, kVectors),
                    options(slots - 1, BackwardPrefetch::kNone, {GateLimit::Kind::kUnits, slots}));
    w.steady();
    EXPECT_EQ(w.forward_time(), ends[static_cast<std::size_t>(slots - 1)]) << slots;
    if (slots == 2) {
      EXPECT_EQ(w.gather(2, Pass::kForward).begin, 7);
      EXPECT_EQ(w.gather(3, Pass::kForward).begin, 12);
    }
    if (slots == 3) {
      EXPECT_EQ(w.gather(2, Pass::kForward).begin, 4);
      EXPECT_EQ(w.gather(3, Pass::kForward).begin, 7);
    }
  }
}

TEST(SchedulerTimeline, V35bDepthHelpsWhenOneGatherIsLong) {
  std::vector<Costs> c(6, kVectors);
  c[2].gather = 12;
  const std::vector<Nanos> ends{52, 39, 36, 36};
  for (int slots = 1; slots <= 4; ++slots) {
    ScriptedWorld w(c, options(slots - 1, BackwardPrefetch::kNone, {GateLimit::Kind::kUnits, slots}));
    w.steady();
    EXPECT_EQ(w.forward_time(), ends[static_cast<std::size_t>(slots - 1)]) << slots;
  }
}

TEST(SchedulerTimeline, V36ReduceScatterSlots) {
  std::vector<Costs> c(5, {2, 5, 10, 2});
  c[3].reduce = 25;
  const auto backward = [&](int slots, bool own) {
    ScriptedWorld w(c, options(1, BackwardPrefetch::kPre, {GateLimit::Kind::kNone, 0}, own, slots));
    w.steady();
    return w.backward_time();
  };
  EXPECT_EQ(backward(1, true), 69);
  EXPECT_EQ(backward(2, true), 59);
  EXPECT_EQ(backward(5, true), 54);
  EXPECT_EQ(backward(1, false), 71);
  EXPECT_EQ(backward(2, false), 71);
  EXPECT_EQ(backward(5, false), 71);
}

TEST(SchedulerTimeline, ClosedFormsForSeveralN) {
  for (int n : {1, 2, 3, 8, 12, 40}) {
    const Costs c{6, 10, 20, 6};
    ScriptedWorld w(ScriptedWorld::equal(n, c), usual());
    w.steady();
    EXPECT_EQ(w.forward_time(), c.gather + n * c.forward) << n;
    EXPECT_EQ(w.backward_time(), c.gather + n * c.backward + c.reduce) << n;
    ScriptedWorld none(ScriptedWorld::equal(n, c), options(0, BackwardPrefetch::kNone));
    none.steady();
    EXPECT_EQ(none.forward_time(), n * (c.gather + c.forward)) << n;
    EXPECT_EQ(none.backward_time(), n * (c.gather + c.backward + c.reduce)) << n;
  }
}

TEST(SchedulerTimeline, C06BeforeAfterNone) {
  const Costs c{6, 10, 20, 6};
  const auto total = [&](int forward, BackwardPrefetch mode) {
    ScriptedWorld w(ScriptedWorld::equal(8, c), options(forward, mode, {GateLimit::Kind::kUnits, 2}));
    w.steady();
    return w.end - w.begin;
  };
  EXPECT_EQ(total(0, BackwardPrefetch::kNone), 384);
  EXPECT_EQ(total(1, BackwardPrefetch::kNone), 342);
  EXPECT_EQ(total(1, BackwardPrefetch::kPre), 258);
  EXPECT_EQ(total(1, BackwardPrefetch::kPost), 258);
}

TEST(SchedulerTimeline, C08TwoCommunicatorsOverlapGatherAndReduce) {
  const Costs c{15, 10, 20, 15};
  const auto total = [&](bool own) {
    ScriptedWorld w(ScriptedWorld::equal(8, c), options(1, BackwardPrefetch::kPre, {GateLimit::Kind::kUnits, 2}, own));
    w.steady();
    return w.end - w.begin;
  };
  EXPECT_EQ(total(false), 380);
  EXPECT_EQ(total(true), 320);
}

TEST(SchedulerTimeline, LaunchCostMakesTheHostTheBound) {
  // One unit's forward issues a gather and a compute. With a launch cost above the kernels' the host sets the pace.
  const Nanos launch = 10;
  const int n = 6;
  ScriptedWorld w(ScriptedWorld::equal(n, {1, 1, 1, 1}), usual(), launch);
  w.steady();
  for (UnitId u = 1; u + 1 < n; ++u)
    EXPECT_EQ(w.compute(u, Pass::kForward).begin - w.compute(u - 1, Pass::kForward).begin, 2 * launch) << u;
  EXPECT_EQ(w.compute(n - 1, Pass::kForward).begin - w.compute(n - 2, Pass::kForward).begin, launch)
      << "nothing left to prefetch";
}

TEST(SchedulerGate, V21AtMostTwoUnitsInFlightWithTheUsualSettingsWhateverTheDepth) {
  for (int n : {4, 8, 24}) {
    ScriptedWorld w(ScriptedWorld::equal(n, {1, 10, 20, 1}), usual());
    w.steady();
    EXPECT_EQ(w.meter().peak_by_category()[static_cast<int>(MemoryCategory::kUnsharded)], 2 * 1024) << n;
    EXPECT_EQ(w.meter().peak_by_category()[static_cast<int>(MemoryCategory::kReduce)], 2 * 1024) << n;
    EXPECT_EQ(w.meter().live(), 0) << "nothing is left after a step";
  }
}

TEST(SchedulerOrder, AChangedOrderIsToldAndLeavesNothingGathered) {
  ScriptedWorld w(ScriptedWorld::equal(4, kVectors), usual());
  w.steady();
  EXPECT_TRUE(w.scheduler().take_warnings().empty());
  using K = ScriptEvent::Kind;
  w.script() = {{K::kEnter, 0}, {K::kLeave, 0}, {K::kEnter, 2}, {K::kLeave, 2},
                {K::kEnter, 1}, {K::kLeave, 1}, {K::kEnter, 3}, {K::kLeave, 3}};
  w.step();
  const auto warnings = w.scheduler().take_warnings();
  ASSERT_EQ(warnings.size(), 2u);  // forward and backward
  EXPECT_NE(warnings[0].find("order changed: at unit 2 in forward"), std::string::npos) << warnings[0];
  EXPECT_EQ(w.meter().live(), 0);
  w.step();  // the new order is the record now
  EXPECT_TRUE(w.scheduler().take_warnings().empty());
  EXPECT_EQ(w.order(Pass::kForward, true), "AG0 AG2 F0 AG1 F2 AG3 F1 F3");
}

TEST(SchedulerOrder, AUnitThatRunsOnlySometimesIsReducedAsZeros) {
  ScriptedWorld w(ScriptedWorld::equal(4, kVectors), usual());
  w.steady();
  using K = ScriptEvent::Kind;
  w.script() = {{K::kEnter, 0}, {K::kLeave, 0}, {K::kEnter, 1}, {K::kLeave, 1}, {K::kEnter, 3}, {K::kLeave, 3}};
  const auto before = w.scheduler().stats().reduce_scatters;
  w.step();
  EXPECT_EQ(w.scheduler().stats().reduce_scatters - before, 4) << "fixed message shape whatever ran";
  EXPECT_EQ(w.meter().live(), 0);
  EXPECT_GE(w.scheduler().stats().prefetch_unused, 1);
}

TEST(SchedulerRoot, TheRootIsKeptAndDoesNotCountInTheGate) {
  ScriptedWorld w(ScriptedWorld::equal(4, kVectors), usual());
  w.traits()[0].reshard_after_forward = false;
  w.script() = sequence_script(3, true);
  w.steady();
  EXPECT_EQ(w.order(Pass::kForward, false), "AG0 AG1 AG2 AG3");
  EXPECT_EQ(w.order(Pass::kBackward, false), "AG3 AG2 RS3 AG1 RS2 RS1 RS0");
  EXPECT_EQ(w.meter().peak_by_category()[static_cast<int>(MemoryCategory::kUnsharded)], 3 * 1024);
}

// Groups of another size are another queue, and what they gather is as long as they are many.
TEST(VirtualCollectives, CallsQueueByRoleAndSizeOfTheGroup) {
  VirtualDevice device;
  device.set_recording(true);
  VirtualCollectives collectives(device, 4, [](const CollectiveCall&) { return Nanos{10}; });
  CollectiveCall call;
  call.kind = CollectiveKind::kAllGather, call.count = 8;
  collectives.enqueue(Lane::kAllGather, call);
  call.kind = CollectiveKind::kReduceScatter, call.communicator.ranks = 2;
  collectives.enqueue(Lane::kReduceScatter, call);
  call.kind = CollectiveKind::kAllReduce;
  collectives.enqueue(Lane::kAllReduce, call);
  const std::vector<Span> spans = device.take_spans();
  ASSERT_EQ(spans.size(), 3u);
  const Nanos begins[] = {0, 0, 10};
  const Bytes bytes[] = {4 * 8 * 4, 2 * 8 * 4, 8 * 4};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(spans[i].begin, begins[i]) << i;
    EXPECT_EQ(spans[i].bytes, bytes[i]) << i;
  }
}

}  // namespace
}  // namespace fsdp::testing
