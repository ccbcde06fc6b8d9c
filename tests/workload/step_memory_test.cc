// Bytes of a training step: the host and the meta world make the same requests, the prediction of `plan` holds to the
// byte, and passing a budget ends the step as OutOfMemory, wherever it happens.
#include <gmock/gmock.h>

#include "fsdp/core/errors.h"
#include "fsdp/device/virtual/virtual_device.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/workload/describe.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"

namespace harness {
namespace {

using fsdp::MemoryCategory;

ModelSettings model(const std::string& family) {
  ModelSettings m;
  m.family = family;
  m.layers = 3, m.dim = 64, m.heads = 4, m.kv_heads = family == "llama" ? 2 : 4, m.ffn = 176, m.vocab = 131, m.seq = 32;
  m.positions = 40, m.classes = 50;
  if (family == "t5") m.decoder_layers = 2, m.head_dim = 24;
  return m;
}

struct Measured {
  std::vector<std::int64_t> trace;  // of the second step
  fsdp::MemoryPeak peak;
  fsdp::BytesByCategory category_peaks{};
  fsdp::Bytes resident = 0;
};

fsdp::UnitPlan plan_of(const ModelSettings& m, const std::string& wrap, const fsdp::UnitOptions& o = {}) {
  return fsdp::make_unit_plan(describe_model(m), fsdp::parse_wrap(wrap), o);
}

// What the training step is asked for, beside model and plan.
struct Asked {
  int accumulate = 1;
  bool sync_every = false, checkpoint = false;
  std::optional<double> clip;
  fsdp::SchedulerOptions schedule;
};

Measured measure(const ModelSettings& m, bool meta, const fsdp::UnitPlan& plan, fsdp::Device& device,
                 fsdp::Collectives& collectives, const Asked& asked) {
  fsdp::MemoryMeter meter;
  Measured result;
  TrainerSettings s;
  s.model = m;
  s.batch = 2;
  s.meta = meta;
  s.accumulate = asked.accumulate, s.sync_every = asked.sync_every, s.checkpoint = asked.checkpoint;
  s.clip = asked.clip;
  s.scheduler = asked.schedule;
  {
    Trainer trainer(s, plan, device, collectives, meter);
    result.resident = meter.live();
    trainer.step();
    meter.reset_peak();
    fsdp::set_allocation_trace(&result.trace);
    trainer.step();
    fsdp::set_allocation_trace(nullptr);
    EXPECT_EQ(meter.live(), result.resident) << "a step leaves nothing behind";
    result.peak = meter.peak();
    result.category_peaks = meter.peak_by_category();
  }
  EXPECT_EQ(meter.live(), 0);
  return result;
}

Measured on_host(const ModelSettings& m, const fsdp::UnitPlan& plan, int world, const Asked& asked = {}) {
  Measured first;
  fsdp::run_ranks(world, fsdp::groups_of(plan, world), [&](fsdp::RankWorld& w) {
    Measured r = measure(m, false, plan, w.device, w.collectives, asked);
    if (w.rank == 0) first = std::move(r);
  });
  return first;
}
Measured on_meta(const ModelSettings& m, const fsdp::UnitPlan& plan, int world, const Asked& asked = {}) {
  fsdp::VirtualDevice device;
  fsdp::VirtualCollectives collectives(device, world, [](const fsdp::CollectiveCall&) { return fsdp::Nanos{1000}; });
  return measure(m, true, plan, device, collectives, asked);
}

// Below this the host takes scratch of a few bytes that meta does not.
std::vector<std::int64_t> large(const std::vector<std::int64_t>& trace) {
  constexpr std::int64_t kFloor = 4096;
  std::vector<std::int64_t> out;
  for (const std::int64_t n : trace)
    if (std::abs(n) >= kFloor) out.push_back(n);
  return out;
}

TEST(StepMemory, HostAndMetaMakeTheSameSequenceOfRequests) {
  for (const Family& family : families()) {
    for (const std::string wrap : {"root", "block", "sublayer", "class:Linear"}) {
      if (std::string(family.name) == "gpt2" && wrap == "class:Linear") continue;  // its only Linear is the tied head
      SCOPED_TRACE(std::string(family.name) + " " + wrap);
      const ModelSettings m = model(family.name);
      const auto plan = plan_of(m, wrap);
      const Measured host = on_host(m, plan, 2), meta = on_meta(m, plan, 2);
      EXPECT_GT(large(host.trace).size(), 50u);
      EXPECT_EQ(large(host.trace), large(meta.trace));
      EXPECT_EQ(host.peak.total, meta.peak.total);
      EXPECT_EQ(host.resident, meta.resident);
      EXPECT_EQ(host.category_peaks, meta.category_peaks);
    }
  }
}

// The strategies, layouts, types and micro-batches whose bytes differ.
struct Setting {
  std::string name;
  int world = 2;
  fsdp::UnitOptions unit;
  Asked asked;
  std::vector<fsdp::UnitOptions> in_turn = {};  // of the plan's units, one after the other; empty: `unit`
};
std::vector<Setting> settings() {
  using fsdp::Strategy;
  constexpr auto kHalf = fsdp::Dtype::kBFloat16;
  const auto hybrid = [](Strategy s) { return fsdp::UnitOptions{.strategy = s, .group = 2}; };
  const auto half = [](fsdp::UnitOptions o) {
    o.param_dtype = o.reduce_dtype = kHalf;
    return o;
  };
  std::vector<Setting> all = {
      {"full", 2, {}, {}},
      {"alone", 1, {}, {}},
      {"grad op", 2, {.strategy = Strategy::kShardGradOp}, {}},
      {"no shard", 2, {.strategy = Strategy::kNoShard}, {}},
      {"hybrid", 4, hybrid(Strategy::kHybridShard), {}},
      {"hybrid zero2", 4, hybrid(Strategy::kHybridShardZero2), {}},
      {"reshard to 2", 4, {.reshard_after_forward = true, .reshard_group = 2}, {}},
      {"bf16", 2, {.param_dtype = kHalf}, {}},
      {"bf16 both", 3, {.param_dtype = kHalf, .reduce_dtype = kHalf}, {}},
      {"bf16 alone", 1, {.param_dtype = kHalf}, {}},
      {"bf16 no shard", 2, {.strategy = Strategy::kNoShard, .param_dtype = kHalf, .reduce_dtype = kHalf}, {}},
      {"last", 2, {}, {.accumulate = 3}},
      {"every", 2, {}, {.accumulate = 3, .sync_every = true}},
      {"last alone", 1, {}, {.accumulate = 3}},
      {"last grad op", 2, {.strategy = Strategy::kShardGradOp}, {.accumulate = 3}},
      {"last no shard", 2, {.strategy = Strategy::kNoShard}, {.accumulate = 3}},
      {"every no shard", 2, {.strategy = Strategy::kNoShard}, {.accumulate = 3, .sync_every = true}},
      {"every hybrid", 4, hybrid(Strategy::kHybridShard), {.accumulate = 2, .sync_every = true}},
      {"bf16 hybrid", 4, half(hybrid(Strategy::kHybridShard)), {}},
      {"every bf16 hybrid", 4, half(hybrid(Strategy::kHybridShard)), {.accumulate = 2, .sync_every = true}},
      {"last bf16 hybrid zero2", 4, half(hybrid(Strategy::kHybridShardZero2)), {.accumulate = 2}},
      {"last bf16", 2, {.param_dtype = kHalf, .reduce_dtype = kHalf}, {.accumulate = 2}},
      {"several groups",
       8,
       {},
       {},
       {{.reshard_after_forward = true, .reshard_group = 4},
        hybrid(Strategy::kHybridShard),
        {.strategy = Strategy::kHybridShardZero2, .group = 4, .reduce_dtype = kHalf},
        {.reshard_after_forward = true, .reshard_group = 2}}},
      {"clip", 2, {}, {.clip = 0.1}},
      {"checkpoint", 2, {}, {.checkpoint = true}},
  };
  for (std::size_t i = 0, n = all.size(); i < n; ++i) {
    Setting s = all[i];
    s.name += " per parameter";
    s.unit.layout = fsdp::Layout::kPerParameter;
    all.push_back(s);
  }
  return all;
}

class StepMemoryOf : public testing::TestWithParam<Setting> {};

void expect_predicted(const ModelSettings& m, const Setting& s) {
  const auto tree = describe_model(m);
  for (const std::string wrap : {"root", "block", "sublayer"}) {
    SCOPED_TRACE(m.family + " " + wrap);
    auto plan = plan_of(m, wrap, s.unit);
    for (std::size_t u = 0; u < plan.units.size() && !s.in_turn.empty(); ++u) {
      plan.units[u].options = s.in_turn[u % s.in_turn.size()];
      plan.units[u].options.layout = s.unit.layout;
    }
    std::vector<fsdp::UnitBytes> bytes;
    std::vector<fsdp::UnitTraits> traits;
    for (const auto& unit : plan.units) {
      bytes.push_back(fsdp::unit_bytes(unit, tree, s.world, 8));
      traits.push_back(fsdp::unit_traits(unit, bytes.back(), s.world));
    }
    const auto want = fsdp::predict_memory(traits, bytes, fsdp::make_script(tree, plan, s.asked.checkpoint),
                                           s.asked.schedule, s.world, {s.asked.accumulate, s.asked.sync_every});
    const Measured meta = on_meta(m, plan, s.world, s.asked);
    for (const auto c : {MemoryCategory::kParameters, MemoryCategory::kGradients, MemoryCategory::kOptimizer,
                         MemoryCategory::kUnsharded, MemoryCategory::kReduce})
      EXPECT_EQ(meta.category_peaks[static_cast<std::size_t>(c)], want.category_peaks[static_cast<std::size_t>(c)])
          << fsdp::name_of(c);
    if (wrap != "block") continue;
    const Measured host = on_host(m, plan, s.world, s.asked);
    EXPECT_EQ(large(host.trace), large(meta.trace));
    EXPECT_EQ(host.category_peaks, meta.category_peaks);
  }
}

TEST_P(StepMemoryOf, EverySettingIsWhatThePlanPredictsInBothWorlds) { expect_predicted(model("llama"), GetParam()); }

TEST(StepMemory, OfEveryFamilyIsWhatThePlanPredictsInBothWorlds) {
  for (const Family& family : families()) {
    ModelSettings m = model(family.name);
    expect_predicted(m, {"full", 2, {}, {}});
    expect_predicted(m, {"again", 2, {.layout = fsdp::Layout::kPerParameter}, {.checkpoint = true}});
    m.tied = m.gated = true;
    expect_predicted(m, {"half", 2, {.param_dtype = fsdp::Dtype::kBFloat16}, {.accumulate = 2}});
  }
}

TEST(StepMemory, OfT5IsWhatThePlanPredictsWithoutPrefetch) {
  fsdp::SchedulerOptions on_demand;
  on_demand.forward_prefetch = 0;
  on_demand.backward_prefetch = fsdp::BackwardPrefetch::kNone;
  on_demand.reduce_scatter_slots = 1;
  expect_predicted(model("t5"), {"full", 2, {}, {.schedule = on_demand}});
}

TEST(StepMemory, OfModelsThatTrainInPartIsWhatThePlanPredicts) {
  for (const char* frozen : {"*norm.weight+*q_proj.weight", "model.layers.1.*", "*embed_tokens.*+*.0.*+*.1.mlp*"}) {
    SCOPED_TRACE(frozen);
    ModelSettings m = model("llama");
    m.frozen = frozen;
    expect_predicted(m, {"full", 2, {}, {}});
    expect_predicted(m, {"again", 2, {.layout = fsdp::Layout::kPerParameter}, {.checkpoint = true}});
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, StepMemoryOf, testing::ValuesIn(settings()), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

// The fixture M of the cases.
ModelSettings large_model(std::int64_t layers = 8) {
  ModelSettings m;
  m.layers = layers, m.dim = 256, m.heads = 8, m.kv_heads = 8, m.ffn = 1024, m.vocab = 32000;
  return m;
}
struct Predicted {
  fsdp::BytesByCategory peaks{};
  fsdp::Bytes padding = 0;  // elements of all units
  fsdp::Bytes of(MemoryCategory c) const { return peaks[static_cast<std::size_t>(c)]; }
};
Predicted predict(const ModelSettings& m, int world, const fsdp::UnitOptions& o,
                  const fsdp::MicroBatches& micro_batches = {}) {
  const auto tree = describe_model(m);
  const auto plan = plan_of(m, "block", o);
  std::vector<fsdp::UnitBytes> bytes;
  std::vector<fsdp::UnitTraits> traits;
  Predicted p;
  for (const auto& unit : plan.units) {
    bytes.push_back(fsdp::unit_bytes(unit, tree, world, 8));
    traits.push_back(fsdp::unit_traits(unit, bytes.back(), world));
    p.padding += bytes.back().padding;
  }
  p.peaks = fsdp::predict_memory(traits, bytes, fsdp::make_script(tree, plan), {}, world, micro_batches).category_peaks;
  return p;
}

TEST(StepMemory, AccumulatingWithoutReductionKeepsFullGradients) {  // case C13
  constexpr fsdp::Bytes kParameters = 24'776'960;
  const fsdp::UnitOptions half{.param_dtype = fsdp::Dtype::kBFloat16, .reduce_dtype = fsdp::Dtype::kBFloat16};
  for (const int world : {2, 4, 8}) {
    const Predicted last = predict(large_model(), world, half, {4, false});
    EXPECT_EQ(last.of(MemoryCategory::kGradients), 2 * (kParameters + last.padding)) << world;
    EXPECT_EQ(2 * kParameters, 49'553'920);
    // Reduced each time, the shards are kept, in fp32 so that sums over micro-batches do not round.
    const Predicted every = predict(large_model(), world, half, {4, true});
    EXPECT_EQ(every.of(MemoryCategory::kGradients), 4 * (kParameters + every.padding) / world) << world;
  }
}

TEST(StepMemory, BuffersDoNotGrowWithDepth) {  // case C16
  constexpr fsdp::Bytes kBlock = 4'196'352;
  constexpr fsdp::Bytes kRoot = 65'537'024;  // tables and norm: kept from forward on, and one reduction
  for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
    const fsdp::UnitOptions o{.layout = layout};
    const Predicted few = predict(large_model(4), 2, o);
    for (const std::int64_t layers : {8, 16, 32}) {
      const Predicted p = predict(large_model(layers), 2, o);
      for (const auto c : {MemoryCategory::kUnsharded, MemoryCategory::kReduce})
        EXPECT_EQ(p.of(c), few.of(c)) << layers << " " << fsdp::name_of(c);
    }
    // Per parameter, the root is there twice while it is copied.
    const bool copied = layout == fsdp::Layout::kPerParameter;
    EXPECT_LE(few.of(MemoryCategory::kUnsharded) - kRoot, copied ? kRoot + kBlock : 2 * kBlock);
    EXPECT_LE(few.of(MemoryCategory::kReduce) - kRoot, kBlock);
  }
}

TEST(StepMemory, PassingTheBudgetIsOutOfMemoryWithItsCauseWhereverItHappens) {
  const ModelSettings m = model("llama");
  const auto plan = plan_of(m, "block");
  const Measured free_run = on_meta(m, plan, 2);
  fsdp::VirtualDevice device;
  fsdp::VirtualCollectives collectives(device, 2, [](const fsdp::CollectiveCall&) { return fsdp::Nanos{1000}; });
  TrainerSettings s;
  s.model = m;
  s.batch = 2;
  s.meta = true;
  int in_backward = 0;
  const fsdp::Bytes span = free_run.peak.total - free_run.resident;
  for (int percent = 1; percent <= 100; percent += 3) {
    fsdp::MemoryMeter meter;
    {
      Trainer trainer(s, plan, device, collectives, meter);
      trainer.step();  // records the order: the step after it prefetches and has the larger peak
      meter.set_budget(free_run.resident + span * percent / 100);
      if (percent == 100) {
        EXPECT_NO_THROW(trainer.step());
        continue;
      }
      try {
        trainer.step();
        ADD_FAILURE() << "fits into " << percent << " % of its peak";
      } catch (const fsdp::OutOfMemory& e) {
        EXPECT_EQ(e.budget, free_run.resident + span * percent / 100);
        EXPECT_THAT(e.cause, testing::MatchesRegex(".*, (forward|backward|optimizer), .*"));
        in_backward += e.cause.find("backward") != std::string::npos;
      }
    }
    EXPECT_EQ(meter.live(), 0) << "nothing is left after unwinding";
  }
  EXPECT_GT(in_backward, 0) << "some of the budgets end in backward";
}

TEST(StepMemory, OutOfMemoryKeepsItsTypeThroughBackwardOnTheHost) {
  const ModelSettings m = model("llama");
  const auto plan = plan_of(m, "block");
  const Measured free_run = on_host(m, plan, 1);
  bool seen = false;
  try {
    fsdp::run_ranks(1, [&](fsdp::RankWorld& w) {
      fsdp::MemoryMeter meter;
      TrainerSettings s;
      s.model = m;
      s.batch = 2;
      Trainer trainer(s, plan, w.device, w.collectives, meter);
      trainer.step();
      meter.set_budget(free_run.peak.total - 1);
      trainer.step();
    });
  } catch (const fsdp::OutOfMemory& e) {
    seen = true;
    EXPECT_EQ(e.budget, free_run.peak.total - 1);
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace harness
