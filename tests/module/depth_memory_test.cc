// What grows with the number of blocks, and by how much: counted in whole steps on meta tensors, predicted from the
// plan, in closed form. 4, 8 and 16 blocks (cases C13, C16).
#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp/device/virtual/virtual_device.h"
#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/workload/trainer.h"

namespace fsdp {
namespace {

// What of a block stays between its forward and its backward.
enum class Kept { kNothing, kAllOfIt, kGroupShard };
// What of its gradient is there at the peak.
enum class Gradient { kShard, kWhole };

struct Setting {
  const char* name;
  int world;
  UnitOptions unit;
  MicroBatches micro_batches;
  Kept kept;
  Gradient gradient;
};

constexpr auto kHalf = Dtype::kBFloat16;
const Setting kSettings[] = {
    {"full", 2, {}, {}, Kept::kNothing, Gradient::kShard},
    {"grad_op", 2, {.strategy = Strategy::kShardGradOp}, {}, Kept::kAllOfIt, Gradient::kShard},
    {"no_shard", 2, {.strategy = Strategy::kNoShard}, {}, Kept::kNothing, Gradient::kShard},
    {"hybrid", 4, {.strategy = Strategy::kHybridShard, .group = 2}, {}, Kept::kNothing, Gradient::kShard},
    {"zero2", 4, {.strategy = Strategy::kHybridShardZero2, .group = 2}, {}, Kept::kAllOfIt, Gradient::kShard},
    {"reshard_to_2", 4, {.reshard_after_forward = true, .reshard_group = 2}, {}, Kept::kGroupShard, Gradient::kShard},
    {"bf16", 3, {.param_dtype = kHalf, .reduce_dtype = kHalf}, {}, Kept::kNothing, Gradient::kShard},
    {"bf16_fp32", 2, {.param_dtype = kHalf}, {}, Kept::kNothing, Gradient::kShard},
    {"every", 2, {}, {3, true}, Kept::kNothing, Gradient::kShard},
    {"last", 2, {}, {3, false}, Kept::kNothing, Gradient::kWhole},
    {"every_hybrid", 4, {.strategy = Strategy::kHybridShard, .group = 2}, {3, true}, Kept::kNothing, Gradient::kShard},
    {"last_hybrid", 4, {.strategy = Strategy::kHybridShard, .group = 2}, {3, false}, Kept::kNothing, Gradient::kWhole},
    {"hybrid_bf16",
     4,
     {.strategy = Strategy::kHybridShard, .group = 2, .param_dtype = kHalf, .reduce_dtype = kHalf},
     {},
     Kept::kNothing,
     Gradient::kShard},
    {"every_hybrid_bf16",
     4,
     {.strategy = Strategy::kHybridShard, .group = 2, .param_dtype = kHalf, .reduce_dtype = kHalf},
     {3, true},
     Kept::kNothing,
     Gradient::kShard},
    {"last_zero2",
     4,
     {.strategy = Strategy::kHybridShardZero2, .group = 2},
     {3, false},
     Kept::kAllOfIt,
     Gradient::kWhole},
    {"last_bf16", 2, {.param_dtype = kHalf, .reduce_dtype = kHalf}, {2, false}, Kept::kNothing, Gradient::kWhole},
};

struct Memory {
  BytesByCategory counted{}, predicted{};
  UnitBytes block;
  Bytes of(MemoryCategory c) const { return counted[static_cast<std::size_t>(c)]; }
};

Memory measure(const Setting& s, Layout layout, Count layers) {
  harness::TrainerSettings t;
  t.model.layers = layers, t.model.dim = 32, t.model.heads = t.model.kv_heads = 2, t.model.ffn = 56;
  t.model.vocab = 61, t.model.seq = 8;
  t.meta = true;
  t.accumulate = s.micro_batches.count, t.sync_every = s.micro_batches.sync_every;
  UnitOptions unit = s.unit;
  unit.layout = layout;
  const ModuleTree tree = harness::describe_model(t.model);
  const UnitPlan plan = make_unit_plan(tree, WrapBlocks{}, unit);
  std::vector<UnitBytes> bytes;
  std::vector<UnitTraits> traits;
  for (const UnitSpec& u : plan.units) {
    bytes.push_back(unit_bytes(u, tree, s.world, 8));
    traits.push_back(unit_traits(u, bytes.back(), s.world));
  }
  Memory m;
  m.block = bytes.back();
  m.predicted = predict_memory(traits, bytes, make_script(tree, plan), {}, s.world, s.micro_batches).category_peaks;
  VirtualDevice device;
  VirtualCollectives collectives(device, s.world, [](const CollectiveCall&) { return Nanos{1}; });
  MemoryMeter meter;
  harness::Trainer trainer(t, plan, device, collectives, meter);
  trainer.step();
  meter.reset_peak();
  trainer.step();
  m.counted = meter.peak_by_category();
  return m;
}

class DepthMemory : public testing::TestWithParam<Setting> {};

TEST_P(DepthMemory, IsCountedAsPlannedAndGrowsByWhatIsKeptOfABlockAlone) {
  const Setting& s = GetParam();
  for (const Layout layout : {Layout::kFlat, Layout::kPerParameter}) {
    SCOPED_TRACE(layout == Layout::kFlat ? "flat" : "per parameter");
    std::vector<Memory> by_depth;
    for (const Count layers : {4, 8, 16}) {
      const Memory m = by_depth.emplace_back(measure(s, layout, layers));
      for (const auto c : {MemoryCategory::kParameters, MemoryCategory::kGradients, MemoryCategory::kOptimizer,
                           MemoryCategory::kUnsharded, MemoryCategory::kReduce})
        EXPECT_EQ(m.of(c), m.predicted[static_cast<std::size_t>(c)]) << name_of(c) << ", blocks " << layers;
    }
    const UnitBytes& b = by_depth[0].block;
    const Bytes kept = s.kept == Kept::kAllOfIt ? b.unsharded : s.kept == Kept::kGroupShard ? b.group_shard : 0;
    const Bytes gradient = s.gradient == Gradient::kWhole ? b.accumulated : b.gradient + b.group_sum;
    for (std::size_t i = 1; i < 3; ++i) {
      const Count more = i == 1 ? 4 : 8;
      const Memory &few = by_depth[i - 1], &many = by_depth[i];
      EXPECT_EQ(many.of(MemoryCategory::kParameters) - few.of(MemoryCategory::kParameters), more * b.parameters);
      EXPECT_EQ(many.of(MemoryCategory::kOptimizer) - few.of(MemoryCategory::kOptimizer), more * b.optimizer);
      EXPECT_EQ(many.of(MemoryCategory::kUnsharded) - few.of(MemoryCategory::kUnsharded), more * kept);
      EXPECT_EQ(many.of(MemoryCategory::kReduce) - few.of(MemoryCategory::kReduce), 0);
      EXPECT_EQ(many.of(MemoryCategory::kGradients) - few.of(MemoryCategory::kGradients), more * gradient);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, DepthMemory, testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fsdp
