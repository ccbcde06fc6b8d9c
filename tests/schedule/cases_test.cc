// Public troubles with memory and the number of collectives, shrunk to schedules over the plans of a real model: named
// after the cases that tests/README.md lists.
#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/model_settings.h"
#include "tests/schedule/scripted_world.h"

namespace fsdp::testing {
namespace {

// 8 blocks of 1,049,088 parameters, two tables of 8,192,000, a norm of 256: 24,776,960.
harness::ModelSettings fixture_m() {
  harness::ModelSettings m;
  m.layers = 8, m.dim = 256, m.heads = m.kv_heads = 8, m.ffn = 1024, m.vocab = 32000;
  return m;
}

// Two steps of a plan on the virtual device; what the second one did.
struct Steps {
  VerbLog log;
  SchedulerStats stats;
  MemoryPeak peak;
  BytesByCategory peaks{}, live{};
  Bytes of(MemoryCategory c) const { return peaks[static_cast<std::size_t>(c)]; }
  // Position of the first such entry of the unit's forward; -1: none.
  std::ptrdiff_t at(Verb verb, UnitId unit) const {
    const auto it = std::find_if(log.begin(), log.end(), [&](const VerbEntry& e) {
      return e.verb == verb && e.unit == unit && e.pass == Pass::kForward;
    });
    return it == log.end() ? -1 : it - log.begin();
  }
};

Steps run(const ModuleTree& tree, const UnitPlan& plan, int world, const SchedulerOptions& options = {}) {
  std::vector<UnitBytes> bytes;
  std::vector<UnitTraits> traits;
  for (const UnitSpec& u : plan.units) {
    bytes.push_back(unit_bytes(u, tree, world, 8));
    traits.push_back(unit_traits(u, bytes.back(), world));
  }
  VirtualDevice device;
  VirtualCollectives collectives(device, world, [](const CollectiveCall&) { return Nanos{1}; });
  MemoryMeter meter;
  CountingUnitMemory memory(bytes, std::vector<bool>(bytes.size(), false), meter);
  Scheduler scheduler(traits, options, device, collectives, memory, &meter);
  const Script script = make_script(tree, plan);
  Steps s;
  run_scripted_step(scheduler, device, 0, script, {});
  const SchedulerStats before = scheduler.stats();
  meter.reset_peak();
  scheduler.set_log(&s.log);
  run_scripted_step(scheduler, device, 1, script, {});
  s.stats = scheduler.stats();
  s.stats.all_gathers -= before.all_gathers;
  s.stats.reduce_scatters -= before.reduce_scatters;
  s.peaks = meter.peak_by_category();
  s.live = meter.live_by_category();
  return s;
}

UnitPlan plan_of(const ModuleTree& tree, const std::string& yaml, const UnitOptions& o = {}) {
  return make_unit_plan(tree, parse_wrap_plan(yaml, "plan.yaml"), o);
}

// The root keeps both tables for the whole step; out of it they come and go like any unit.
TEST(Cases, C03TableAndHeadInTheRoot) {
  constexpr Bytes kBlock = 4'196'352, kRoot = 65'537'024;
  const ModuleTree tree = harness::describe_model(fixture_m());
  const Steps a = run(tree, make_unit_plan(tree, WrapBlocks{}, {}), 8);
  EXPECT_EQ(a.stats.all_gathers, 17);
  EXPECT_EQ(a.stats.reduce_scatters, 9);
  EXPECT_EQ(a.of(MemoryCategory::kUnsharded), kRoot + 2 * kBlock) << "the block that runs and the next one";
  SchedulerOptions without;
  without.forward_prefetch = 0;
  without.backward_prefetch = BackwardPrefetch::kNone;
  EXPECT_EQ(run(tree, make_unit_plan(tree, WrapBlocks{}, {}), 8, without).of(MemoryCategory::kUnsharded), 69'733'376);

  const UnitPlan apart = plan_of(tree, R"(units:
  - match: model.embed_tokens
  - match: "model.layers.*"
  - {match: [model.norm, lm_head], reshard_after_forward: false}
)");
  const Steps b = run(tree, apart, 8);
  ASSERT_EQ(apart.units.size(), 10u);
  EXPECT_EQ(b.stats.all_gathers, 19);
  EXPECT_EQ(b.stats.reduce_scatters, 10);
  EXPECT_EQ(b.of(MemoryCategory::kUnsharded), 36'965'376) << "the head and one block";
  EXPECT_GT(b.at(Verb::kAllGather, 9), b.at(Verb::kComputeEnd, 7)) << "no earlier than the last block's pre-forward";
  EXPECT_LT(b.at(Verb::kReleaseUnsharded, 0), b.at(Verb::kComputeBegin, 2))
      << "the table is gone before the second block";
}

// Both tables in one unit make one request of twice the size; what travels is the same.
TEST(Cases, C04TwoTablesInOneReduction) {
  struct Size {
    Count vocab, dim;
    int world;
    Bytes together;
  };
  for (const Size& size : {Size{248'320, 5'120, 64, 10'171'187'200}, Size{1'024, 64, 2, 524'288}}) {
    harness::ModelSettings m;
    m.layers = 1, m.dim = size.dim, m.heads = m.kv_heads = 4, m.ffn = 32, m.vocab = size.vocab;
    const ModuleTree tree = harness::describe_model(m);
    Bytes travels[2] = {};
    int i = 0;
    for (const char* match : {"units: [{match: [model.embed_tokens, lm_head]}]",
                              "units: [{match: model.embed_tokens}, {match: lm_head}]"}) {
      Bytes largest = 0;
      for (const UnitSpec& u : plan_of(tree, match).units) {
        if (u.is_root) continue;
        const UnitBytes b = unit_bytes(u, tree, size.world, 8);
        largest = std::max({largest, b.unsharded, b.reduce});
        travels[i] += b.unsharded + b.reduce;
      }
      EXPECT_EQ(largest, i == 0 ? size.together : size.together / 2) << match;
      ++i;
    }
    EXPECT_EQ(travels[0], travels[1]);
  }
}

// A host that runs eight units ahead: as many unsharded blocks as the limit says.
TEST(Cases, C09GathersRunningAhead) {
  const struct {
    GateLimit limit;
    Bytes blocks;
  } kRows[] = {
      {{GateLimit::Kind::kNone, 0}, 8}, {{GateLimit::Kind::kUnits, 2}, 2}, {{GateLimit::Kind::kBytes, 1024}, 1}};
  for (const auto& row : kRows) {
    SchedulerOptions o;
    o.forward_prefetch = 8;
    o.backward_prefetch = BackwardPrefetch::kNone;
    o.max_inflight = row.limit;
    ScriptedWorld w(ScriptedWorld::equal(8, {.gather = 1, .forward = 10, .backward = 20, .reduce = 1}), o);
    w.steady();
    EXPECT_EQ(w.meter().peak_by_category()[static_cast<std::size_t>(MemoryCategory::kUnsharded)], row.blocks * 1024);
    EXPECT_EQ(w.forward_time(), row.blocks == 1 ? 8 * (1 + 10) : 1 + 8 * 10) << "the prefetch waits, never the compute";
  }
}

// Whole gradients exist one or two units at a time; what stays is the shards.
TEST(Cases, C14OnlyShardsOfGradientsStay) {
  const ModuleTree tree = harness::describe_model(fixture_m());
  Bytes before = 0;
  for (const int world : {2, 4, 8}) {
    const Steps s = run(tree, make_unit_plan(tree, WrapBlocks{}, {}), world);
    EXPECT_EQ(s.of(MemoryCategory::kGradients), 24'776'960 * 4 / world);
    EXPECT_EQ(s.live[static_cast<std::size_t>(MemoryCategory::kGradients)], 0);
    EXPECT_EQ(s.live[static_cast<std::size_t>(MemoryCategory::kReduce)], 0);
    if (before > 0) {
      EXPECT_EQ(s.of(MemoryCategory::kReduce) + s.of(MemoryCategory::kUnsharded), before)
          << "does not shrink with ranks";
    }
    before = s.of(MemoryCategory::kReduce) + s.of(MemoryCategory::kUnsharded);
  }
}

TEST(CountingUnitMemory, AHybridUnitCallsItsGroupAndAcrossGroups) {
  const ModuleTree tree = harness::describe_model(fixture_m());
  MemoryMeter meter;
  for (const int group : {2, 8}) {
    const UnitPlan plan = make_unit_plan(tree, WrapBlocks{}, {.strategy = Strategy::kHybridShard, .group = group});
    CountingUnitMemory memory({unit_bytes(plan.units.front(), tree, 8, 8)}, {false}, meter);
    const int ranks = group == 8 ? 0 : group;  // a group of all ranks is the world
    EXPECT_EQ(memory.all_gather_call(0).communicator, Communicator(Communicator::kShard, ranks));
    EXPECT_EQ(memory.reduce_call(0).communicator, Communicator(Communicator::kShard, ranks));
    if (ranks > 0) {
      EXPECT_EQ(memory.replica_call(0).communicator, Communicator(Communicator::kReplica, ranks));
    }
  }
}

}  // namespace
}  // namespace fsdp::testing
