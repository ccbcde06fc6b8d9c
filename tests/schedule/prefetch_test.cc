// Orders given by the user, and lookahead over units of unlike size under a limit in bytes.
#include <gmock/gmock.h>

#include <random>

#include "tests/schedule/scripted_world.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

SchedulerOptions ahead(int depth, GateLimit gate) {
  SchedulerOptions o;
  o.forward_prefetch = o.backward_depth = depth;
  o.max_inflight = gate;
  return o;
}
GateLimit units(int n) { return {GateLimit::Kind::kUnits, n}; }
GateLimit bytes(Bytes n) { return {GateLimit::Kind::kBytes, n}; }
constexpr Costs kCosts{2, 5, 10, 3};

TEST(GivenOrder, IsFollowedFromTheFirstStepOn) {
  SchedulerOptions o = ahead(1, units(2));
  o.forward_order = {0, 1, 2};
  o.backward_order = {2, 1, 0};
  ScriptedWorld w(ScriptedWorld::equal(3, kCosts), o);
  w.step();
  EXPECT_EQ(w.order(Pass::kForward, true), "AG0 AG1 F0 AG2 F1 F2");
  EXPECT_EQ(w.order(Pass::kBackward, true), "AG2 AG1 B2 RS2 AG0 B1 RS1 B0 RS0");
  EXPECT_EQ(w.scheduler().stats().prefetch_hits, 4);
  EXPECT_EQ(w.scheduler().stats().prefetch_misses, 0);
  EXPECT_TRUE(w.scheduler().take_warnings().empty());
}

TEST(GivenOrder, BeginsBeforeItsFirstUnitAtWhateverRunsFirst) {
  SchedulerOptions o = ahead(1, units(2));
  o.forward_order = {1, 2};
  ScriptedWorld w(ScriptedWorld::equal(3, kCosts), o);
  w.traits()[0].reshard_after_forward = false;
  w.script() = sequence_script(2, true);
  w.step();
  EXPECT_EQ(w.order(Pass::kForward, true), "AG0 AG1 F0 AG2 F1 F2");
  EXPECT_EQ(w.scheduler().stats().prefetch_misses, 0) << "nobody could have asked for the first one earlier";
}

// Case C11: every unit is followed by one that has run already.
TEST(GivenOrder, AWrongOneNeverHitsIsFreedCountedAndTold) {
  SchedulerOptions o = ahead(1, units(2));
  o.backward_prefetch = BackwardPrefetch::kNone;
  o.forward_order = {3, 2, 1, 0};
  ScriptedWorld w(ScriptedWorld::equal(4, kCosts), o);
  w.step();
  // While 1 runs 0 is gathered again, while 2 runs 1, while 3 runs 2. The gate has two places: a unit on demand takes
  // its place from what was gathered ahead.
  const SchedulerStats s = w.scheduler().stats();
  EXPECT_EQ(s.prefetch_hits, 0);
  EXPECT_EQ(s.prefetch_misses, 3);
  EXPECT_EQ(s.prefetch_unused, 3);
  EXPECT_EQ(w.meter().live(), 0);
  EXPECT_LE(w.meter().peak_by_category()[static_cast<int>(MemoryCategory::kUnsharded)], 2 * 1024);
  const auto warnings = w.scheduler().take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("prefetch_order: 3 gathers ahead in one forward pass were freed unused"));
  w.step();
  EXPECT_TRUE(w.scheduler().take_warnings().empty()) << "once";
}

// Sizes 4 1 1 1 4 1 1 1 under 6: three units fit beside the first; the second large one must wait until three of the
// small ones are gone, and the small one behind it does not overtake.
TEST(ByteBudget, AsManyUnitsAsFitUpToTheDepth) {
  ScriptedWorld w(ScriptedWorld::equal(8, kCosts), ahead(3, bytes(6)));
  for (UnitId u = 0; u < 8; ++u) w.set_bytes(u, u % 4 == 0 ? 4 : 1);
  w.steady();
  EXPECT_EQ(w.order(Pass::kForward, true), "AG0 AG1 AG2 F0 AG3 F1 AG4 F2 AG5 F3 AG6 F4 AG7 F5 F6 F7");
  EXPECT_EQ(w.meter().peak_by_category()[static_cast<int>(MemoryCategory::kUnsharded)], 6);
}

TEST(ByteBudget, TheDepthEndsWhatTheBytesWouldAllow) {
  ScriptedWorld w(ScriptedWorld::equal(6, kCosts), ahead(2, bytes(1000)));
  for (UnitId u = 0; u < 6; ++u) w.set_bytes(u, 1 + u);
  w.steady();
  EXPECT_EQ(w.order(Pass::kForward, true), "AG0 AG1 AG2 F0 AG3 F1 AG4 F2 AG5 F3 F4 F5");
  EXPECT_EQ(w.meter().peak_by_category()[static_cast<int>(MemoryCategory::kUnsharded)], 4 + 5 + 6);
}

TEST(ByteBudget, AUnitLargerThanAllOfItIsGatheredAlone) {
  ScriptedWorld w(ScriptedWorld::equal(4, kCosts), ahead(3, bytes(2)));
  w.set_bytes(0, 1), w.set_bytes(1, 9), w.set_bytes(2, 1), w.set_bytes(3, 1);
  w.steady();
  EXPECT_EQ(w.order(Pass::kForward, true), "AG0 F0 AG1 F1 AG2 AG3 F2 F3");
  EXPECT_EQ(w.meter().peak_by_category()[static_cast<int>(MemoryCategory::kUnsharded)], 9);
}

// V35 in bytes: with equal units a budget of s units is s slots.
TEST(ByteBudget, OfEqualUnitsIsThatManySlots) {
  const Nanos want[] = {28, 22, 22, 22};
  for (int slots = 1; slots <= 4; ++slots) {
    ScriptedWorld in_bytes(ScriptedWorld::equal(4, {2, 5, 10, 3}), ahead(slots, bytes(1024 * slots)));
    ScriptedWorld in_units(ScriptedWorld::equal(4, {2, 5, 10, 3}), ahead(slots, units(slots)));
    in_bytes.steady(), in_units.steady();
    EXPECT_EQ(in_bytes.forward_time(), want[slots - 1]) << slots;
    EXPECT_EQ(in_bytes.forward_time(), in_units.forward_time()) << slots;
    EXPECT_EQ(in_bytes.backward_time(), in_units.backward_time()) << slots;
  }
}

// Replays a pass: at each gather what is in flight stays within the budget, and after each of the scheduler's turns the
// next unit is beyond the depth or does not fit.
TEST(ByteBudget, IsFullAndNeverPassedOverRandomSizes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int n = 2 + static_cast<int>(random() % 9), depth = 1 + static_cast<int>(random() % 4);
    const Bytes budget = 4 + static_cast<Bytes>(random() % 12);
    ScriptedWorld w(ScriptedWorld::equal(n, kCosts), ahead(depth, bytes(budget)));
    std::vector<Bytes> size;
    for (UnitId u = 0; u < n; ++u) w.set_bytes(u, size.emplace_back(1 + static_cast<Bytes>(random() % 8)));
    w.steady();
    Bytes in_flight = 0;
    UnitId gathered = -1, running = -1;
    for (const VerbEntry& e : w.log) {
      if (e.pass != Pass::kForward) continue;
      if (e.verb == Verb::kAllGather) {
        in_flight += size[static_cast<std::size_t>(e.unit)];
        gathered = e.unit;
        EXPECT_TRUE(in_flight <= budget || in_flight == size[static_cast<std::size_t>(e.unit)]) << round;
        EXPECT_LE(gathered - running, depth + 1) << round;
      }
      if (e.verb == Verb::kReleaseUnsharded) in_flight -= size[static_cast<std::size_t>(e.unit)];
      if (e.verb != Verb::kComputeBegin) continue;
      running = e.unit;
      if (gathered + 1 == n) continue;
      const bool fits = in_flight + size[static_cast<std::size_t>(gathered + 1)] <= budget;
      EXPECT_TRUE(gathered - running == depth || !fits) << round << ": room for unit " << gathered + 1;
    }
    EXPECT_EQ(running, n - 1);
  }
}

}  // namespace
}  // namespace fsdp::testing
