#include <gtest/gtest.h>

#include "tests/schedule/scripted_world.h"

namespace fsdp::testing {
namespace {

struct Counts {
  SchedulerStats stats;
  Bytes gradients, unsharded, live;
};
Counts run(const MicroBatches& mb, bool kept = false) {
  ScriptedWorld w(ScriptedWorld::equal(4, {2, 5, 10, 3}));
  for (auto& t : w.traits()) t.reshard_after_forward = !kept;
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

}  // namespace
}  // namespace fsdp::testing
