// Gradients of the sharded model against an unsharded run of the same micro-batches, bit for bit where division by the
// number of ranks is exact; memory of the step, in both worlds.
#include <gmock/gmock.h>

#include <mutex>

#include "fsdp/core/errors.h"
#include "fsdp/device/virtual/virtual_device.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/fully_shard.h"
#include "fsdp/module/kernels.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"
#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/workload/models.h"
#include "harness/workload/synthetic_data.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"

namespace harness {
namespace {

constexpr std::uint64_t kSeed = 42;
using Gradients = std::vector<std::vector<float>>;  // by ParameterId

ModelSettings small(const std::string& family, bool tied = false) {
  ModelSettings m;
  m.family = family;
  m.layers = 3, m.dim = 40, m.heads = 4, m.kv_heads = family == "llama" ? 2 : 4, m.ffn = 52, m.vocab = 67, m.seq = 11;
  m.rotary_pct = 0.4;
  m.tied = tied;
  return m;
}

struct Batch {
  at::Tensor inputs, targets;
};
Batch batch_of(const ModelSettings& m, int rank) {
  const auto t = synthetic_tokens(kSeed, 2 * rank, 2, m.seq, m.vocab);
  const at::Tensor all = at::tensor(t, at::kLong).view({2, m.seq + 1});
  return {all.narrow(1, 0, m.seq).contiguous(), all.narrow(1, 1, m.seq).contiguous()};
}

Gradients unsharded(const ModelSettings& m, int world) {
  at::set_num_threads(1);
  const auto model = build_model(m, false);
  std::vector<at::Tensor> leaves;
  for (const auto& p : fsdp::parameters_of(*model)) {
    at::Tensor w = at::empty(p->shape, at::kFloat);
    if (p->init == fsdp::InitRule::kUniform)
      fsdp::kernels::uniform_weights(kSeed, static_cast<std::uint64_t>(p->index), 0, w.numel(),
                                     w.mutable_data_ptr<float>());
    else
      w.fill_(p->init == fsdp::InitRule::kOnes ? 1.0 : 0.0);
    leaves.push_back(w.requires_grad_());
  }
  for (int r = 0; r < world; ++r) {
    std::size_t i = 0;
    for (const auto& p : fsdp::parameters_of(*model)) p->set(leaves[i++]);
    const Batch b = batch_of(m, r);
    (fsdp::ops::cross_entropy((*model)(b.inputs), b.targets) / static_cast<double>(world)).backward();
  }
  Gradients g;
  for (const at::Tensor& t : leaves) {
    const at::Tensor c = t.grad().contiguous();
    g.emplace_back(c.const_data_ptr<float>(), c.const_data_ptr<float>() + c.numel());
  }
  return g;
}

Gradients sharded(const ModelSettings& m, int world, const std::string& wrap, const fsdp::UnitOptions& options) {
  const auto tree = describe_model(m);
  const auto plan = fsdp::make_unit_plan(tree, fsdp::parse_wrap(wrap, options), options);
  Gradients g(tree.parameters.size());
  for (std::size_t p = 0; p < g.size(); ++p)
    g[p].assign(static_cast<std::size_t>(tree.parameters[p].numel()), std::numeric_limits<float>::quiet_NaN());
  std::mutex mutex;
  fsdp::run_ranks(world, [&](fsdp::RankWorld& w) {
    at::set_num_threads(1);
    const auto model = build_model(m, false);
    fsdp::ShardedModel sharded(*model, plan, {.meta = false, .seed = kSeed, .scheduler = {}}, w.device, w.collectives,
                               nullptr);
    const Batch b = batch_of(m, w.rank);
    for (int step = 0; step < 2; ++step) {  // the second follows the recorded order
      sharded.scheduler().begin_step();
      fsdp::ops::cross_entropy((*model)(b.inputs), b.targets).backward();
      sharded.scheduler().end_backward();
      if (step == 0) {
        sharded.scheduler().begin_optimizer();
        sharded.scheduler().end_optimizer();
      }
    }
    const std::lock_guard lock(mutex);
    for (fsdp::UnitId u = 0; u < sharded.unit_count(); ++u) {
      const auto& layout = sharded.layout(u);
      const auto* flat = sharded.shard(u).gradients.const_data_ptr<float>();
      for (std::size_t i = 0; i < layout.numels.size(); ++i) {
        const auto r = layout.local(i, layout.world > 1 ? w.rank : 0);
        auto& to = g[static_cast<std::size_t>(plan.units[static_cast<std::size_t>(u)].parameters[i])];
        std::copy(flat + r.at, flat + r.at + (r.end - r.begin), to.begin() + r.begin);
      }
    }
  });
  return g;
}

double largest_distance(const Gradients& a, const Gradients& b) {  // relative to each parameter's largest gradient
  double worst = 0.0;
  for (std::size_t p = 0; p < a.size(); ++p) {
    double top = 0.0, distance = 0.0;
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      top = std::max(top, std::abs(static_cast<double>(b[p][i])));
      const double d = std::abs(static_cast<double>(a[p][i]) - b[p][i]);
      distance = std::isnan(d) ? 1e9 : std::max(distance, d);
    }
    worst = std::max(worst, distance / top);
  }
  return worst;
}

TEST(ShardedGradients, EqualTheUnshardedOnesBitForBitWhereDivisionIsExact) {
  for (const std::string family : {"llama", "gpt-neox"}) {
    for (const int world : {1, 2, 4}) {
      const Gradients want = unsharded(small(family), world);
      for (const std::string wrap : {"root", "block", "blocks:2", "sublayer", "class:Linear"}) {
        SCOPED_TRACE(family + " " + wrap + " over " + std::to_string(world));
        EXPECT_EQ(sharded(small(family), world, wrap, {}), want);
      }
    }
  }
}

TEST(ShardedGradients, AreWithinRoundingOfTheUnshardedOnesForThreeRanks) {
  const Gradients want = unsharded(small("llama"), 3);
  for (const std::string wrap : {"root", "block", "class:Linear"})
    EXPECT_LT(largest_distance(sharded(small("llama"), 3, wrap, {}), want), 1e-6) << wrap;
}

TEST(ShardedGradients, DoNotDependOnTheStrategy) {
  const Gradients want = unsharded(small("gpt-neox"), 2);
  for (const auto strategy : {fsdp::Strategy::kShardGradOp, fsdp::Strategy::kNoShard}) {
    for (const std::string wrap : {"root", "block"}) {
      fsdp::UnitOptions o;
      o.strategy = strategy;
      EXPECT_EQ(sharded(small("gpt-neox"), 2, wrap, o), want) << fsdp::name_of(strategy) << " " << wrap;
    }
  }
}

TEST(ShardedGradients, OfTiedWeightsAreSummed) {
  for (const std::string family : {"llama", "gpt-neox"}) {
    const ModelSettings m = small(family, true);
    const Gradients want = unsharded(m, 2);
    for (const std::string wrap : {"root", "block"}) EXPECT_EQ(sharded(m, 2, wrap, {}), want) << family << " " << wrap;
  }
}

TEST(ShardedGradients, RefusesWhatTheRuntimeDoesNotDo) {
  fsdp::UnitOptions o;
  o.strategy = fsdp::Strategy::kHybridShard;
  o.group = 1;
  EXPECT_THROW(sharded(small("llama"), 2, "block", o), fsdp::ConfigError);
}

}  // namespace
}  // namespace harness
