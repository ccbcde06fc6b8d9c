// Shapes of models that the families do not have: units used twice, unused, frozen, nested, in an order that changes.
#include <c10/core/AutogradState.h>
#include <gmock/gmock.h>

#include <mutex>

#include "fsdp/core/errors.h"
#include "fsdp/module/fully_shard.h"
#include "fsdp/module/kernels.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/sharded_optimizer.h"
#include "fsdp/module/torch.h"
#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/workload/layers.h"
#include "tests/module/ranks.h"

namespace harness {
namespace {

using fsdp::Layout;
using fsdp::Strategy;
using fsdp::Tensors;
using testing::HasSubstr;

constexpr std::int64_t kWidth = 8, kRows = 5;
constexpr std::uint64_t kSeed = 3;

// A linear with a bias of its own around the inner one: a unit in a unit.
class Nest final : public fsdp::Module {
 public:
  Nest() : Module("Nest"), inner_(add_child<Linear>("inner", kWidth, kWidth, true)) {
    add_parameter("weight", {kWidth, kWidth}, fsdp::InitRule::kUniform);
  }

 protected:
  Tensors forward(Tensors inputs) override {
    at::Tensor x = fsdp::ops::linear(inputs[0], parameters()[0].second->read(), {});
    inputs.clear();
    inputs.push_back(inner_(fsdp::ops::gelu(x)));
    inputs[0] = fsdp::ops::gelu(inputs[0]);
    return inputs;
  }

 private:
  fsdp::Module& inner_;
};

// Children that run in any order, any number of times.
class Pool final : public fsdp::Module {
 public:
  Pool(int linears, int nests) : Module("Pool") {
    for (int i = 0; i < linears; ++i)
      add_child<Linear>("linear" + std::to_string(i), kWidth, kWidth, true).mark_block();
    for (int i = 0; i < nests; ++i) add_child<Nest>("nest" + std::to_string(i)).mark_block();
  }
  std::vector<int> order;

 protected:
  Tensors forward(Tensors inputs) override {
    for (const int child : order) {
      inputs = (*children()[static_cast<std::size_t>(child)].second)(std::move(inputs));
      // Small weights: without this the signal is gone after a few layers.
      inputs[0] = at::add(at::mul(inputs[0], 8.0), 0.1);
    }
    return inputs;
  }
};

struct Shape {
  int linears = 3, nests = 0;
  std::vector<std::vector<int>> orders = {{0, 1, 2}};  // by micro-batch
  std::vector<std::string> frozen;                     // names of parameters
  std::string wrap = "class:Linear";
  int world = 2;
  fsdp::UnitOptions unit;
  bool checkpoint = false;
};

std::unique_ptr<Pool> build(const Shape& s) {
  auto pool = std::make_unique<Pool>(s.linears, s.nests);
  fsdp::name_modules(*pool);
  for (const auto& p : fsdp::parameters_of(*pool))
    p->trainable = std::find(s.frozen.begin(), s.frozen.end(), p->name) == s.frozen.end();
  for (const auto& [name, child] : pool->children()) child->set_checkpointed(s.checkpoint);
  return pool;
}

void backward(Pool& pool, const std::vector<int>& order, int sample, std::size_t micro_batches) {
  at::Tensor x = at::empty({1, kRows, kWidth}, at::kFloat);
  fsdp::kernels::uniform_weights(kSeed, 1000 + static_cast<std::uint64_t>(sample), 0, x.numel(),
                                 x.mutable_data_ptr<float>());
  const at::Tensor targets = at::arange(kRows, at::kLong).remainder(kWidth).add(sample).remainder(kWidth);
  pool.order = order;
  Tensors inputs;
  inputs.push_back(at::mul(x, 32.0));
  at::Tensor loss = fsdp::ops::cross_entropy(pool(std::move(inputs))[0], targets);
  loss.backward(at::full({}, 1.0 / static_cast<double>(micro_batches)));
}

using Gradients = std::map<std::string, std::vector<float>>;
std::vector<float> values_of(const at::Tensor& t) {
  const at::Tensor c = t.contiguous();
  return {c.const_data_ptr<float>(), c.const_data_ptr<float>() + c.numel()};
}

Gradients unsharded(const Shape& s) {
  const auto pool = build(s);
  std::map<std::string, at::Tensor> leaves;
  for (const auto& p : fsdp::parameters_of(*pool)) {
    at::Tensor w = at::zeros(p->shape, at::kFloat);
    if (p->init == fsdp::InitRule::kUniform)
      fsdp::kernels::uniform_weights(kSeed, static_cast<std::uint64_t>(p->index), 0, w.numel(),
                                     w.mutable_data_ptr<float>());
    leaves[p->name] = w.requires_grad_(p->trainable);
  }
  std::vector<std::map<std::string, at::Tensor>> by_rank(static_cast<std::size_t>(s.world));
  for (int r = 0; r < s.world; ++r) {
    for (std::size_t k = 0; k < s.orders.size(); ++k) {
      for (const auto& p : fsdp::parameters_of(*pool)) p->set(leaves[p->name]);
      backward(*pool, s.orders[k], static_cast<int>(k) * s.world + r, s.orders.size());
    }
    for (auto& [name, leaf] : leaves)
      by_rank[static_cast<std::size_t>(r)][name] = std::exchange(leaf.mutable_grad(), {});
  }
  Gradients g;
  for (auto& [name, leaf] : leaves) {
    if (!leaf.requires_grad()) continue;
    at::Tensor sum = at::zeros_like(leaf).detach();
    for (auto& rank : by_rank)
      if (rank[name].defined()) sum = sum + rank[name];
    g[name] = values_of(sum / static_cast<double>(s.world));
  }
  return g;
}

struct Result {
  Gradients gradients;
  std::vector<std::string> warnings;
  fsdp::SchedulerStats second_step;  // differences to the first
  std::string order;                 // collectives of the second step
};

Result sharded(const Shape& s, const std::vector<std::vector<int>>& second_orders = {}) {
  Result result;
  std::mutex mutex;
  const auto described = build(s);
  const auto plan = fsdp::make_unit_plan(fsdp::tree_of(*described), fsdp::parse_wrap(s.wrap), s.unit);
  fsdp::run_ranks(s.world, fsdp::groups_of(plan, s.world), [&](fsdp::RankWorld& w) {
    at::set_num_threads(1);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    fsdp::MemoryMeter meter;
    const auto pool = build(s);
    fsdp::ShardedModel model(*pool, plan, {.meta = false, .seed = kSeed, .scheduler = {}}, w.device, w.collectives,
                             &meter);
    const fsdp::Bytes resident = meter.live();
    fsdp::SchedulerStats before;
    fsdp::VerbLog log;
    for (int step = 0; step < 2; ++step) {
      if (step == 1) before = model.scheduler().stats(), model.scheduler().set_log(&log);
      const auto& orders = step == 1 && !second_orders.empty() ? second_orders : s.orders;
      model.scheduler().begin_step();
      for (std::size_t k = 0; k < orders.size(); ++k) {
        model.scheduler().set_gradient_sync(
            fsdp::MicroBatches{static_cast<int>(orders.size())}.sync(static_cast<int>(k)));
        backward(*pool, orders[k], static_cast<int>(k) * s.world + w.rank, orders.size());
        model.scheduler().end_backward();
      }
      if (step == 1) break;
      model.scheduler().begin_optimizer();
      model.scheduler().end_optimizer();
      EXPECT_EQ(meter.live(), resident) << "nothing stays gathered";
    }
    const std::lock_guard lock(mutex);
    for (fsdp::UnitId u = 0; u < model.unit_count(); ++u) {
      if (!model.shard(u).trains) continue;
      const auto* flat = model.shard(u).gradients.const_data_ptr<float>();
      for (std::size_t i = 0; i < model.parameter_count(u); ++i) {
        const auto p = model.parameter_shard(u, i);
        if (!p.parameter->trainable) continue;
        auto& to = result.gradients[p.parameter->name];
        to.resize(static_cast<std::size_t>(c10::multiply_integers(p.parameter->shape)));
        std::copy_n(flat + p.gradient_at, p.range.end - p.range.begin, to.begin() + p.range.begin);
      }
    }
    if (w.rank != 0) return;
    for (std::string& t : model.scheduler().take_warnings()) result.warnings.push_back(std::move(t));
    result.second_step = model.scheduler().stats();
    result.second_step.all_gathers -= before.all_gathers;
    result.second_step.reduce_scatters -= before.reduce_scatters;
    result.second_step.prefetch_unused -= before.prefetch_unused;
    result.order = fsdp::collective_order(log);
  });
  return result;
}

void expect_near(const Gradients& got, const Gradients& want, float tolerance) {
  for (const auto& [name, w] : want) {
    float top = 0.0f;
    for (const float x : w) top = std::max(top, std::abs(x));
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(got.at(name)[i], w[i], tolerance * top) << name;
  }
}

template <class Change>
void in_every_layout(Shape s, const Change& check) {
  for (const auto layout : {Layout::kFlat, Layout::kPerParameter}) {
    for (const auto strategy : {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kNoShard}) {
      s.unit.layout = layout, s.unit.strategy = strategy;
      SCOPED_TRACE(std::string(fsdp::name_of(strategy)) + (layout == Layout::kFlat ? " flat" : " per parameter"));
      check(s);
    }
  }
}

TEST(ModuleShapes, AUnitUsedTwiceIsReducedOnce) {  // case C21
  for (const bool recompute : {false, true}) {
    Shape s;
    s.linears = 2, s.orders = {{0, 0, 1}}, s.checkpoint = recompute;
    in_every_layout(s, [](const Shape& c) {
      const Result r = sharded(c);
      EXPECT_EQ(r.gradients, unsharded(c));
      EXPECT_EQ(r.second_step.prefetch_unused, 0);
      if (c.unit.strategy != Strategy::kNoShard) {
        EXPECT_EQ(r.second_step.reduce_scatters, 2) << r.order;
      }
    });
    s.orders = {{0, 0, 1}, {0, 0, 1}};  // four contributions, added in another order than autograd's
    in_every_layout(s, [](const Shape& c) { expect_near(sharded(c).gradients, unsharded(c), 1e-6f); });
  }
}

TEST(ModuleShapes, UnusedUnitsAreReducedAsZeros) {
  Shape s;
  s.orders = {{0, 2}};
  in_every_layout(s, [](const Shape& c) {
    const Result r = sharded(c);
    EXPECT_EQ(r.gradients, unsharded(c));
    EXPECT_THAT(r.warnings, testing::ElementsAre(AllOf(HasSubstr("unit linear1 was not entered"), HasSubstr("zeros"))));
    if (c.unit.strategy == Strategy::kFullShard) {
      EXPECT_EQ(r.second_step.reduce_scatters, 3) << r.order;
    }
  });
  s.orders = {{0, 2}, {0, 1, 2}};  // used in the second micro-batch only: case C19
  s.unit.param_dtype = fsdp::Dtype::kFloat32;
  in_every_layout(s, [](const Shape& c) {
    const Result r = sharded(c);
    EXPECT_EQ(r.gradients, unsharded(c));
    EXPECT_THAT(r.warnings, testing::Each(testing::Not(HasSubstr("was not entered"))));
  });
  s.orders = {{0, 1, 2}, {0, 2}};  // in the first only: what was accumulated is reduced
  EXPECT_THAT(sharded(s).warnings, testing::Each(testing::Not(HasSubstr("was not entered"))));
}

TEST(ModuleShapes, HalfPrecisionGradientsOfMicroBatchesMeetInTheReduceType) {  // case C19
  Shape s;
  s.linears = 2, s.orders = {{0}, {0, 1}};
  const Gradients want = unsharded(s);
  s.unit.param_dtype = fsdp::Dtype::kBFloat16;
  for (const auto layout : {Layout::kFlat, Layout::kPerParameter}) {
    s.unit.layout = layout;
    expect_near(sharded(s).gradients, want, 3e-2f);
  }
}

TEST(ModuleShapes, FrozenUnitsAreGatheredAndNeverReduced) {
  Shape s;
  s.frozen = {"linear1.weight", "linear1.bias"};
  in_every_layout(s, [](const Shape& c) {
    const Result r = sharded(c);
    EXPECT_EQ(r.gradients, unsharded(c));
    if (c.unit.strategy != Strategy::kFullShard) return;
    EXPECT_EQ(r.second_step.all_gathers, 6) << r.order;
    EXPECT_EQ(r.second_step.reduce_scatters, 2) << r.order;
    EXPECT_THAT(r.order, testing::Not(HasSubstr("RS1")));
  });
  s.frozen = {"linear0.weight", "linear0.bias"};  // nothing flows to it in backward: no gather there
  const Result r = sharded(s);
  EXPECT_EQ(r.gradients, unsharded(s));
  EXPECT_EQ(r.second_step.reduce_scatters, 2) << r.order;
}

TEST(ModuleShapes, FrozenAndTrainableInOneUnit) {  // trap T41
  Shape s;
  s.frozen = {"linear0.weight", "linear2.bias"};
  in_every_layout(s, [](const Shape& c) { EXPECT_EQ(sharded(c).gradients, unsharded(c)); });
  s.wrap = "root";
  in_every_layout(s, [](const Shape& c) { EXPECT_EQ(sharded(c).gradients, unsharded(c)); });
}

TEST(ModuleShapes, UnitsInUnits) {
  for (const bool recompute : {false, true}) {
    Shape s;
    s.linears = 1, s.nests = 2, s.orders = {{0, 1, 2}}, s.wrap = "class:Nest,Linear", s.checkpoint = recompute;
    in_every_layout(s, [](const Shape& c) {
      const Result r = sharded(c);
      EXPECT_EQ(r.gradients, unsharded(c));
      EXPECT_EQ(r.second_step.prefetch_unused, 0) << r.order;
      if (c.unit.strategy == Strategy::kFullShard) {
        EXPECT_EQ(r.second_step.all_gathers, 10) << r.order;
      }
    });
  }
}

TEST(ModuleShapes, WhatIsComputedAgainGathersOncePerPass) {  // case C10
  Shape s;
  s.checkpoint = true;
  const auto gathers = [&] { return sharded(s).second_step.all_gathers; };
  EXPECT_EQ(gathers(), 2 * 3) << "inside its unit";
  s.unit.strategy = Strategy::kShardGradOp;
  EXPECT_EQ(gathers(), 3) << "of units that are kept";
  // The last region's units are entered again before any unit's own backward has begun.
  s = {};
  s.linears = 0, s.nests = 2, s.orders = {{0, 1}}, s.checkpoint = true;
  s.wrap = "class:Linear", s.frozen = {"nest0.weight", "nest1.weight"};
  const Result r = sharded(s);
  EXPECT_EQ(r.gradients, unsharded(s));
  EXPECT_TRUE(r.warnings.empty()) << r.warnings[0];
}

TEST(ModuleShapes, AnOrderThatChangesIsGatheredOnDemandAndSaid) {  // case C06
  Shape s;
  s.linears = 4, s.orders = {{0, 1, 2, 3}};
  Shape swapped = s;
  swapped.orders = {{0, 2, 1, 3}};
  const Gradients want = unsharded(swapped);
  in_every_layout(s, [&](const Shape& c) {
    const Result r = sharded(c, swapped.orders);
    EXPECT_EQ(r.gradients, want);
    if (c.unit.strategy != Strategy::kFullShard) return;
    ASSERT_FALSE(r.warnings.empty());
    EXPECT_THAT(r.warnings[0], HasSubstr("order changed: at unit linear2"));
  });
}

TEST(ModuleShapes, BranchesThatDifferByRankAreAnErrorThatNamesThem) {  // case C18
  Shape s;
  const auto described = build(s);
  const auto plan = fsdp::make_unit_plan(fsdp::tree_of(*described), fsdp::parse_wrap(s.wrap), s.unit);
  try {
    fsdp::run_ranks(2, [&](fsdp::RankWorld& w) {
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      const auto pool = build(s);
      fsdp::ShardedModel model(*pool, plan, {}, w.device, w.collectives, nullptr);
      model.scheduler().begin_step();
      try {
        backward(*pool, {w.rank}, w.rank, 1);
        model.scheduler().end_backward();
      } catch (...) {
        w.collectives.abort("rank " + std::to_string(w.rank) + " failed");
        w.device.cancel();
        throw;
      }
    });
    FAIL() << "two ranks gathered different units";
  } catch (const fsdp::CommError& e) {
    EXPECT_THAT(e.what(), HasSubstr("rank 0"));
    EXPECT_THAT(e.what(), HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace harness
