#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp/schedule/ordering_checker.h"
#include "tests/schedule/scripted_world.h"

namespace fsdp::testing {
namespace {

struct Counts {
  SchedulerStats stats;
  Bytes gradients, unsharded, live;
};
Counts run(const MicroBatches& mb, bool kept = false) {
  ScriptedWorld w(ScriptedWorld::equal(4, {2, 5, 10, 3}));
  for (auto& t : w.traits()) t.reshard_after_forward = t.frees_without_sync = !kept;
  w.micro_batches = mb;
  w.steady();
  const SchedulerStats before = w.scheduler().stats();
  w.step();
  SchedulerStats s = w.scheduler().stats();
  s.all_gathers -= before.all_gathers, s.reduce_scatters -= before.reduce_scatters;
  const auto& peak = w.meter().peak_by_category();
  return {s, peak[static_cast<int>(MemoryCategory::kGradients)], peak[static_cast<int>(MemoryCategory::kUnsharded)],
          w.meter().live()};
}
constexpr Bytes kUnit = 1024, kShard = 512;

TEST(MicroBatches, SyncOnTheLastOneKeepsFullGradientsAndSendsOnce) {
  const Counts c = run({.count = 4, .sync_every = false});
  EXPECT_EQ(c.stats.reduce_scatters, 4);
  EXPECT_EQ(c.stats.all_gathers, 4 * 8);
  // The full gradients of all units, and, as they are reduced one by one, the first shard on top.
  EXPECT_EQ(c.gradients, 4 * kUnit);
  EXPECT_EQ(c.live, 0);
}
TEST(MicroBatches, SyncEveryTimeKeepsShardsAndSendsEveryTime) {
  const Counts c = run({.count = 4, .sync_every = true});
  EXPECT_EQ(c.stats.reduce_scatters, 16);
  EXPECT_EQ(c.stats.all_gathers, 4 * 8);
  EXPECT_EQ(c.gradients, 4 * kShard);
  EXPECT_EQ(c.live, 0);
}
TEST(MicroBatches, KeptUnitsStayGatheredBetweenMicroBatchesThatAreNotReduced) {
  const Counts c = run({.count = 4, .sync_every = false}, true);
  EXPECT_EQ(c.stats.all_gathers, 4);
  EXPECT_EQ(c.unsharded, 4 * kUnit);
  const Counts every = run({.count = 4, .sync_every = true}, true);
  EXPECT_EQ(every.stats.all_gathers, 16);
}

TEST(Hybrid, TheReplicaReductionFollowsTheScatterAndOnlyOnTheLastMicroBatch) {
  ScriptedWorld w(ScriptedWorld::equal(3, {2, 5, 10, 3}));
  for (auto& t : w.traits()) t.replicates = true;
  w.micro_batches = {.count = 2, .sync_every = true};
  w.steady();
  EXPECT_EQ(w.order(Pass::kBackward, false), "AG2 AG1 RS2 AG0 RS1 RS0 AG2 AG1 RS2 AR2 AG0 RS1 AR1 RS0 AR0");
  EXPECT_EQ(w.meter().live(), 0);
}

// Case C10: what backward computes again never changes the order of collectives.
struct Recompute {
  std::int64_t gathers;
  Nanos time;
  bool sound;
};
Recompute recompute(bool unit_inside_region, bool kept) {
  ScriptedWorld w(ScriptedWorld::equal(8, {6, 10, 30, 6}));  // backward: 10 to compute again, 20 as ever
  for (auto& t : w.traits()) t.reshard_after_forward = !kept;
  Script s;
  using Kind = ScriptEvent::Kind;
  for (UnitId u = 0; u < 8; ++u) {
    const std::vector<ScriptEvent> outside = {
        {Kind::kRegionBegin}, {Kind::kEnter, u}, {Kind::kLeave, u}, {Kind::kRegionEnd}};
    const std::vector<ScriptEvent> inside = {
        {Kind::kEnter, u}, {Kind::kRegionBegin}, {Kind::kRegionEnd}, {Kind::kLeave, u}};
    const auto& events = unit_inside_region ? outside : inside;
    s.insert(s.end(), events.begin(), events.end());
  }
  w.script() = s;
  w.steady();
  const auto before = w.scheduler().stats().all_gathers;
  w.step();
  return {w.scheduler().stats().all_gathers - before, w.end - w.begin, !find_ordering_fault(w.log).has_value()};
}

TEST(Recompute, InsideAUnitGathersTwiceAndPrefetchesAsEver) {
  const Recompute r = recompute(false, false);
  EXPECT_EQ(r.gathers, 2 * 8);
  EXPECT_EQ(r.time, 338);
  EXPECT_TRUE(r.sound);
  EXPECT_EQ(recompute(false, true).gathers, 8) << "kept after forward: once";
}
// Others gather a third time, because what is computed again gives the parameters back. Here it keeps them.
TEST(Recompute, AroundAUnitKeepsWhatItGathersForTheBackwardThatFollows) {
  const Recompute r = recompute(true, false);
  EXPECT_EQ(r.gathers, 2 * 8);
  EXPECT_TRUE(r.sound);
}

TEST(RepeatedUnit, IsReducedOnceAfterItsLastBackward) {
  ScriptedWorld w(ScriptedWorld::equal(3, {2, 5, 10, 3}));
  using Kind = ScriptEvent::Kind;
  w.script() = {{Kind::kEnter, 0}, {Kind::kLeave, 0}, {Kind::kEnter, 1}, {Kind::kLeave, 1},
                {Kind::kEnter, 0}, {Kind::kLeave, 0}, {Kind::kEnter, 2}, {Kind::kLeave, 2}};
  w.steady();
  EXPECT_EQ(w.order(Pass::kBackward, true), "AG2 AG0 B2 RS2 AG1 B0 B1 RS1 B0 RS0");
  EXPECT_EQ(w.meter().live(), 0);
  EXPECT_FALSE(find_ordering_fault(w.log).has_value());
}

TEST(FrozenUnit, IsGatheredAndNeverReduced) {
  ScriptedWorld w(ScriptedWorld::equal(3, {2, 5, 10, 3}));
  w.traits()[1].trains = false;
  w.steady();
  EXPECT_EQ(w.order(Pass::kBackward, false), "AG2 AG1 RS2 AG0 RS0");
  EXPECT_EQ(w.meter().live(), 0);
}

// Casts before the gather, copies after it, parts kept over smaller groups: still without a race.
TEST(Gathering, CastsAndCopiesAreOrdered) {
  ScriptedWorld w(ScriptedWorld::equal(5, {2, 5, 10, 3}));
  for (auto& t : w.traits()) t.casts = true, t.copies_out = true, t.keeps_group_shard = true;
  w.micro_batches = {.count = 2};
  VerbLog all;
  for (int step = 0; step < 3; ++step) {
    w.step();
    all.insert(all.end(), w.log.begin(), w.log.end());
  }
  const auto fault = find_ordering_fault(all);
  EXPECT_FALSE(fault.has_value()) << fault->text;
  const auto casts = std::count_if(all.begin(), all.end(), [](const auto& e) { return e.verb == Verb::kCast; });
  const auto copies = std::count_if(all.begin(), all.end(), [](const auto& e) { return e.verb == Verb::kCopyOut; });
  EXPECT_EQ(casts, 3 * 2 * 5) << "the gather of backward takes what was cast in forward";
  EXPECT_EQ(copies, 3 * 2 * 10);
  EXPECT_EQ(w.meter().live(), 0);
}

}  // namespace
}  // namespace fsdp::testing
