// What types cost and change: the cast of outputs, the type of buffers in bytes, sums of groups in the reduce type.
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

// ---- gradients of hybrid units

// Passes calls on and keeps those that reduce.
class Reductions final : public Collectives {
 public:
  explicit Reductions(Collectives& inner) : inner_(inner) {}
  std::vector<CollectiveCall> calls;

  int rank() const override { return inner_.rank(); }
  int world() const override { return inner_.world(); }
  int group_size(Communicator c) const override { return inner_.group_size(c); }
  void enqueue(Lane lane, const CollectiveCall& call) override {
    if (call.kind != CollectiveKind::kAllGather) calls.push_back(call);
    inner_.enqueue(lane, call);
  }
  std::vector<std::uint64_t> exchange(std::uint64_t value) override { return inner_.exchange(value); }
  void* allocate(Bytes n) override { return inner_.allocate(n); }
  void release(void* p) noexcept override { inner_.release(p); }

 private:
  Collectives& inner_;
};

struct Hybrid {
  std::vector<float> gradient;
  std::vector<CollectiveCall> calls;
};

// One unit over two groups of two. In micro-batch k every element of every rank's gradient is parts[k].
Hybrid reduce_across(const std::vector<double>& parts, Dtype reduce) {
  Hybrid out;
  const auto body = [&](RankWorld& w) {
    install_counting_allocators();
    Square model;
    name_modules(model);
    const UnitOptions unit{.strategy = Strategy::kHybridShard, .group = 2, .reduce_dtype = reduce};
    const UnitPlan plan = make_unit_plan(tree_of(model), WrapRoot{}, unit);
    Reductions calls(w.collectives);
    ShardedModel sharded(model, plan, {}, w.device, calls, nullptr);
    Scheduler& s = sharded.scheduler();
    s.begin_step();
    for (std::size_t k = 0; k < parts.size(); ++k) {
      s.set_gradient_sync(k + 1 == parts.size() ? GradientSync::kFull : GradientSync::kReduce);
      Tensors inputs;
      inputs.push_back(at::full({1, 1, kWidth}, parts[k], at::kFloat));
      const at::Tensor y = model(std::move(inputs))[0];
      y.backward(at::ones(y.sizes(), y.options()));
      s.end_backward();
    }
    const at::Tensor g = sharded.shard(0).gradients;
    if (w.rank == 0) {
      out.gradient.assign(g.const_data_ptr<float>(), g.const_data_ptr<float>() + g.numel());
      out.calls = calls.calls;
    }
    s.begin_optimizer();
    s.end_optimizer();
    w.device.drain();
  };
  UnitPlan groups;
  groups.units.resize(1);
  groups.units[0].options = {.strategy = Strategy::kHybridShard, .group = 2};
  run_ranks(4, groups_of(groups, 4), body);
  return out;
}

constexpr Count kShardOfTwo = kWidth * kWidth / 2;

TEST(HybridReduceType, IsThatOfBothReductionsAndTheGradientIsNot) {
  const Hybrid half = reduce_across({3.0}, kHalf);
  ASSERT_EQ(half.calls.size(), 2u);
  const CollectiveCall &inside = half.calls[0], &across = half.calls[1];
  EXPECT_EQ(inside.kind, CollectiveKind::kReduceScatter);
  EXPECT_EQ(across.kind, CollectiveKind::kAllReduce);
  for (const CollectiveCall& c : half.calls) {
    EXPECT_EQ(c.in_dtype, kHalf);
    EXPECT_EQ(c.count, kShardOfTwo);
  }
  EXPECT_EQ(full_bytes(across, 2), kShardOfTwo * 2) << "as many bytes as FSDP2 reduces across";
  EXPECT_EQ(inside.out_dtype, kHalf);
  EXPECT_EQ(across.out_dtype, Dtype::kFloat32);
  EXPECT_THAT(half.gradient, testing::Each(3.0f));
  const Hybrid full = reduce_across({3.0}, Dtype::kFloat32);
  EXPECT_EQ(full_bytes(full.calls.at(1), 2), kShardOfTwo * 4);
}

// bf16 has steps of 2^-7 between 1 and 2. The groups' sums over the micro-batches are 1 + 3 * 2^-9.
TEST(HybridReduceType, RoundsAGroupsSumOnceHoweverManyMicroBatchesItHas) {
  const std::vector<double> parts{2.0, 0x1p-8, 0x1p-8, 0x1p-8};
  const Hybrid half = reduce_across(parts, kHalf);
  EXPECT_EQ(half.calls.size(), parts.size() + 1);
  EXPECT_THAT(half.gradient, testing::Each(2 * (1 + 0x1p-7f)));
  EXPECT_THAT(reduce_across(parts, Dtype::kFloat32).gradient, testing::Each(2 * (1 + 3 * 0x1p-9f)));
}

// ---- buffers

Bytes resident(const harness::ModelSettings& m, bool meta) {
  Bytes live = 0;
  const auto measure = [&](Device& device, Collectives& collectives) {
    MemoryMeter meter;
    harness::TrainerSettings s;
    s.model = m;
    s.meta = meta;
    const UnitPlan plan = make_unit_plan(harness::describe_model(m), parse_wrap("block"), {});
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
