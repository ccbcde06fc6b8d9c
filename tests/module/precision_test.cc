// What types cost and change: the cast of outputs and the type of buffers, in bytes.
#include <gmock/gmock.h>

#include "fsdp/device/virtual/virtual_device.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/fully_shard.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"

namespace fsdp {
namespace {

constexpr Count kRows = 5, kWidth = 16;
constexpr Dtype kHalf = Dtype::kBFloat16;

class Square final : public Module {
 public:
  Square() : Module("Square") { add_parameter("weight", {kWidth, kWidth}, InitRule::kUniform); }

 protected:
  Tensors forward(Tensors inputs) override {
    inputs[0] = ops::linear(inputs[0], parameters()[0].second->read(), {});
    return inputs;
  }
};

// Two squares, each a unit.
class Two final : public Module {
 public:
  Two() : Module("Two"), first_(add_child<Square>("first")), second_(add_child<Square>("second")) {}
  at::ScalarType between = at::kDouble;

 protected:
  Tensors forward(Tensors inputs) override {
    inputs = first_(std::move(inputs));
    between = inputs[0].scalar_type();
    return second_(std::move(inputs));
  }

 private:
  Module &first_, &second_;
};

struct Seen {
  at::ScalarType between, last;
  Bytes live = 0;  // activations when forward is over, the input apart
  std::vector<float> gradient;
};

// Both units bf16; what they hand on differs.
Seen run(std::optional<Dtype> first, std::optional<Dtype> second) {
  Seen seen;
  run_ranks(1, [&](RankWorld& w) {
    install_counting_allocators();
    MemoryMeter meter;
    Two model;
    name_modules(model);
    UnitPlan plan = make_unit_plan(tree_of(model), WrapClass{{"Square"}}, {.param_dtype = kHalf});
    ASSERT_EQ(plan.units.size(), 2u);
    plan.units[0].options.output_dtype = first;
    plan.units[1].options.output_dtype = second;
    ShardedModel sharded(model, plan, {}, w.device, w.collectives, &meter);
    at::Tensor x = at::ones({1, kRows, kWidth}, at::kFloat);
    const MeterScope scope(&meter);
    sharded.scheduler().begin_step();
    Tensors inputs;
    inputs.push_back(x);
    at::Tensor y = model(std::move(inputs))[0];
    seen.between = model.between, seen.last = y.scalar_type();
    seen.live = meter.live_by_category()[static_cast<std::size_t>(MemoryCategory::kActivations)];
    at::mul(y, y).sum().backward();
    sharded.scheduler().end_backward();
    const at::Tensor g = sharded.shard(0).gradients;
    seen.gradient.assign(g.const_data_ptr<float>(), g.const_data_ptr<float>() + g.numel());
    sharded.scheduler().begin_optimizer();
    sharded.scheduler().end_optimizer();
    w.device.drain();
  });
  return seen;
}

TEST(OutputType, IsWhatEachUnitNamesAndOutputsStayAsTheyAreWithoutOne) {
  const Seen plain = run({}, {});
  EXPECT_EQ(plain.between, at::kBFloat16);
  EXPECT_EQ(plain.last, at::kBFloat16);
  const Seen last = run({}, Dtype::kFloat32);
  EXPECT_EQ(last.between, at::kBFloat16);
  EXPECT_EQ(last.last, at::kFloat);
  const Seen both = run(Dtype::kFloat32, Dtype::kFloat32);
  EXPECT_EQ(both.between, at::kFloat);
  EXPECT_EQ(both.last, at::kFloat);
}

TEST(OutputType, CostsWhatTheWiderOutputHolds) {
  const Bytes plain = run({}, {}).live;
  // The bf16 output dies with the cast: linear keeps its input and its weight.
  EXPECT_EQ(run({}, Dtype::kFloat32).live - plain, kRows * kWidth * 2);
  // Between units the wider output dies too: the next unit takes it over as bf16.
  EXPECT_EQ(run(Dtype::kFloat32, {}).live - plain, 0);
}

TEST(OutputType, AWiderOutputChangesNoGradient) {
  const Seen plain = run({}, {});
  EXPECT_EQ(run(Dtype::kFloat32, Dtype::kFloat32).gradient, plain.gradient)
      << "bf16 values survive the way through fp32";
  EXPECT_THAT(plain.gradient, testing::Contains(testing::Ne(0.0f)));
}

// ---- buffers

Bytes resident(const harness::ModelSettings& m, bool meta) {
  Bytes live = 0;
  const auto measure = [&](Device& device, Collectives& collectives) {
    MemoryMeter meter;
    harness::TrainerSettings s;
    s.model = m;
    s.meta = meta;
    const UnitPlan plan = make_unit_plan(harness::describe_model(m), parse_wrap("block", {}), {});
    harness::Trainer trainer(s, plan, device, collectives, meter);
    live = meter.live();
    trainer.step();
    EXPECT_EQ(meter.live_by_category()[static_cast<std::size_t>(MemoryCategory::kActivations)], 0);
  };
  if (meta) {
    VirtualDevice device;
    VirtualCollectives collectives(device, 2, [](const CollectiveCall&) { return Nanos{0}; });
    measure(device, collectives);
  } else {
    run_ranks(1, [&](RankWorld& w) { measure(w.device, w.collectives); });
  }
  return live;
}

TEST(BufferType, HalvesTheRotaryTablesWhichAllBlocksShare) {
  for (const bool meta : {false, true}) {
    for (const Count layers : {1, 3}) {
      harness::ModelSettings m;
      m.layers = layers, m.dim = 32, m.heads = m.kv_heads = 2, m.ffn = 24, m.vocab = 40, m.seq = 12;
      const Bytes wide = resident(m, meta);
      m.buffer_dtype = kHalf;
      // Cosines and sines of 12 positions and half of 16 dimensions.
      EXPECT_EQ(wide - resident(m, meta), 2 * 12 * (16 / 2) * (4 - 2)) << meta << " " << layers;
    }
  }
}

}  // namespace
}  // namespace fsdp
