#include "fsdp/schedule/ordering_checker.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/schedule/scripted_world.h"

namespace fsdp::testing {
namespace {

struct Draw {
  std::mt19937 random;
  explicit Draw(unsigned seed) : random(seed) {}
  int below(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
};

SchedulerOptions random_options(Draw& d) {
  SchedulerOptions o;
  o.forward_prefetch = d.below(4);
  o.backward_prefetch = static_cast<BackwardPrefetch>(d.below(3));
  o.backward_depth = 1 + d.below(3);
  switch (d.below(4)) {
    case 0:
      o.max_inflight = {GateLimit::Kind::kNone, 0};
      break;
    case 1:
      o.max_inflight = {GateLimit::Kind::kBytes, 512 + 512 * d.below(8)};
      break;
    default:
      o.max_inflight = {GateLimit::Kind::kUnits, 1 + d.below(4)};
  }
  o.reduce_scatter_slots = 1 + d.below(3);
  o.own_reduce_scatter_communicator = d.below(2) == 1;
  o.demand_waits_for_compute = d.below(4) != 0;
  return o;
}

ScriptedWorld random_world(Draw& d) {
  const int n = 1 + d.below(12);
  std::vector<Costs> costs;
  for (int i = 0; i < n; ++i) costs.push_back({d.below(9), d.below(9), d.below(9), d.below(9)});
  return ScriptedWorld(costs, random_options(d), d.below(3));
}

TEST(OrderingChecker, FindsNoRaceInAThousandRandomPlansAndSettings) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    Draw d(seed);
    ScriptedWorld w = random_world(d);
    const bool root = d.below(2) == 1;
    w.micro_batches = {.count = 1 + d.below(3), .sync_every = d.below(2) == 1};
    for (auto& t : w.traits())
      t.reshard_after_forward = d.below(4) != 0, t.replicates = d.below(3) == 0, t.casts = d.below(3) == 0;
    if (root) w.script() = sequence_script(static_cast<int>(w.traits().size()) - 1, true);
    VerbLog all;
    for (int step = 0; step < 3; ++step) {
      if (d.below(5) == 0 && !root) w.script() = sequence_script(1 + d.below(static_cast<int>(w.traits().size())));
      w.step();
      all.insert(all.end(), w.log.begin(), w.log.end());
    }
    const auto fault = find_ordering_fault(all);
    ASSERT_FALSE(fault.has_value()) << "seed " << seed << ", entry " << fault->index << ": " << fault->text;
    ASSERT_EQ(w.meter().live(), 0) << "seed " << seed;
  }
}

// ---- planted faults: a good log with one thing wrong
// ------------------------------------------------------------------
class PlantedFault : public ::testing::Test {
 protected:
  void SetUp() override {
    SchedulerOptions o;
    o.max_inflight = {GateLimit::Kind::kUnits, 2};
    o.own_reduce_scatter_communicator = true;
    o.reduce_scatter_slots = 1;
    ScriptedWorld w(ScriptedWorld::equal(5, {2, 5, 10, 3}), o);
    for (int i = 0; i < 3; ++i) {
      w.step();
      log.insert(log.end(), w.log.begin(), w.log.end());
    }
    ASSERT_FALSE(find_ordering_fault(log).has_value());
  }
  // The lane of the wait and the verb that comes right before or after it tell the waits apart.
  void drop_waits(Lane lane, Verb next) {
    for (std::size_t i = 0; i + 1 < log.size(); ++i)
      if (log[i].verb == Verb::kWait && log[i].lane == lane) {
        std::size_t j = i + 1;
        while (j < log.size() &&
               (log[j].verb == Verb::kWait || log[j].verb == Verb::kRecord || log[j].verb == Verb::kAcquireUnsharded))
          ++j;
        if (j < log.size() && log[j].verb == next) log.erase(log.begin() + static_cast<std::ptrdiff_t>(i--));
      }
  }
  void expect_found(const std::string& words) {
    const auto fault = find_ordering_fault(log);
    ASSERT_TRUE(fault.has_value());
    EXPECT_NE(fault->text.find(words), std::string::npos) << fault->text;
  }
  VerbLog log;
};

TEST_F(PlantedFault, ComputeThatDoesNotWaitForItsGather) {
  drop_waits(Lane::kCompute, Verb::kComputeBegin);
  expect_found("reads unsharded place");
}
TEST_F(PlantedFault, ReduceThatDoesNotWaitForThePacking) {
  drop_waits(Lane::kReduceScatter, Verb::kReduceScatter);
  expect_found("reads reduce place");
}
TEST_F(PlantedFault, GatherThatDoesNotWaitForThePlaceToBeFree) {
  drop_waits(Lane::kAllGather, Verb::kAllGather);
  expect_found("overwrites unsharded place");
}
TEST_F(PlantedFault, ReduceInputReleasedBeforeItsReduceIsOver) {
  drop_waits(Lane::kCompute, Verb::kReleaseReduce);
  expect_found("releases reduce place");
}
TEST_F(PlantedFault, GatherOfTheNextStepThatDoesNotWaitForTheOptimizer) {
  // Every all-gather's wait, and the one at the begin of the step: place waits alone would hide it behind the compute.
  for (std::size_t i = 0; i < log.size(); ++i)
    if (log[i].verb == Verb::kWait && log[i].lane == Lane::kAllGather)
      log.erase(log.begin() + static_cast<std::ptrdiff_t>(i--));
  for (VerbEntry& e : log)
    if (e.verb == Verb::kAcquireUnsharded || e.verb == Verb::kAllGather || e.verb == Verb::kReleaseUnsharded)
      e.slot = -1;
  expect_found("reads the shard of unit");
}
TEST_F(PlantedFault, ParametersReleasedBeforeTheComputeThatReadsThem) {
  for (std::size_t i = 1; i < log.size(); ++i)
    if (log[i].verb == Verb::kReleaseUnsharded) {
      // the release names an event that was recorded before its compute began
      for (std::size_t j = i; j-- > 0;)
        if (log[j].verb == Verb::kRecord && log[j].lane == Lane::kAllGather) {
          log[i].event = log[j].event;
          break;
        }
      break;
    }
  expect_found("releases unsharded place");
}
TEST_F(PlantedFault, OptimizerThatDoesNotWaitForTheReductions) {
  std::size_t optimizer = 0;
  while (log[optimizer].verb != Verb::kOptimizerBegin) ++optimizer;
  for (std::size_t i = optimizer; i-- > 0 && log[i].verb != Verb::kReduceScatter;)
    if (log[i].verb == Verb::kReleaseReduce || (log[i].verb == Verb::kWait && log[i].lane == Lane::kCompute))
      log.erase(log.begin() + static_cast<std::ptrdiff_t>(i));
  expect_found("reads the gradient of unit");
}

}  // namespace
}  // namespace fsdp::testing
