// Gradients of the sharded model against an unsharded run of the same micro-batches, bit for bit where division by the
// number of ranks is exact; memory of the step, in both worlds.
#include <c10/core/AutogradState.h>
#include <gmock/gmock.h>

#include <map>
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
#include "harness/workload/batch.h"
#include "harness/workload/describe.h"
#include "harness/workload/models.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"

namespace harness {
namespace {

constexpr std::uint64_t kSeed = 42;
using Gradients = std::vector<std::vector<float>>;  // by ParameterId

// Rows of 67, 52 and 10 do not divide by the worlds here.
ModelSettings small(const std::string& family, bool tied = false) {
  ModelSettings m;
  m.family = family;
  m.layers = 3, m.dim = 40, m.heads = 4, m.kv_heads = family == "llama" ? 2 : 4, m.ffn = 52, m.vocab = 67, m.seq = 11;
  m.rotary_pct = 0.4;
  m.tied = tied, m.gated = !tied;
  m.positions = 13, m.classes = 21;
  if (family == "t5") m.decoder_layers = 2, m.head_dim = 6, m.relative_buckets = 8, m.relative_span = 9;
  if (family == "qwen3") m.kv_heads = 2, m.head_dim = 14;
  return m;
}

Batch batch_of(const ModelSettings& m, int rank) { return make_batch(m, kSeed, 2 * rank, 2, false); }

using fsdp::Tensors;

// What the sharded run is asked for, beside the model.
struct Case {
  int world = 2;
  std::string wrap = "block";
  fsdp::UnitOptions unit;
  std::vector<fsdp::UnitOptions> in_turn;  // of the plan's units, one after the other; empty: `unit`
  int micro_batches = 1;
  bool sync_every = false;
  bool checkpoint = false;
  fsdp::SchedulerOptions schedule;
};

void backward(const fsdp::Module& model, const Batch& b, int micro_batches) {
  at::Tensor loss = fsdp::ops::cross_entropy(const_cast<fsdp::Module&>(model)(b.inputs), b.targets);
  loss.backward(at::full({}, 1.0 / micro_batches));
}

std::vector<float> values_of(const at::Tensor& t) {
  const at::Tensor c = t.contiguous();
  return {c.const_data_ptr<float>(), c.const_data_ptr<float>() + c.numel()};
}

// Mean over ranks, sum over micro-batches. Ranks are summed group by group, each group in rank order.
at::Tensor mean_of_ranks(const std::vector<at::Tensor>& by_rank, const Case& c) {
  const std::size_t group = c.unit.group > 0 ? static_cast<std::size_t>(c.unit.group) : by_rank.size();
  at::Tensor total;
  for (std::size_t first = 0; first < by_rank.size(); first += group) {
    at::Tensor sum = by_rank[first];
    for (std::size_t r = first + 1; r < first + group; ++r) sum = sum + by_rank[r];
    total = total.defined() ? total + sum : sum;
  }
  return total / static_cast<double>(c.world);
}
at::Tensor sum_of(const std::vector<std::vector<Tensors>>& each, std::size_t p, const Case& c) {
  std::vector<at::Tensor> by_rank;
  at::Tensor total;
  for (int k = 0; k < c.micro_batches; ++k) {
    std::vector<at::Tensor> now;
    for (const auto& rank : each) now.push_back(rank[static_cast<std::size_t>(k)][p]);
    if (c.sync_every) {
      total = total.defined() ? total + mean_of_ranks(now, c) : mean_of_ranks(now, c);
      continue;
    }
    if (by_rank.empty()) by_rank.resize(now.size());
    for (std::size_t r = 0; r < now.size(); ++r) by_rank[r] = by_rank[r].defined() ? by_rank[r] + now[r] : now[r];
  }
  return c.sync_every ? total : mean_of_ranks(by_rank, c);
}

// Every micro-batch of every rank on its own, and their sum in the order in which the sharded run makes it.
Gradients unsharded(const ModelSettings& m, const Case& c) {
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
    leaves.push_back(w.requires_grad_(p->trainable));
  }
  std::vector<std::vector<Tensors>> each(static_cast<std::size_t>(c.world));  // [rank][micro-batch][parameter]
  for (int r = 0; r < c.world; ++r) {
    for (int k = 0; k < c.micro_batches; ++k) {
      std::size_t i = 0;
      for (const auto& p : fsdp::parameters_of(*model)) p->set(leaves[i++]);
      backward(*model, batch_of(m, k * c.world + r), c.micro_batches);
      auto& g = each[static_cast<std::size_t>(r)].emplace_back();
      for (at::Tensor& leaf : leaves) g.push_back(std::exchange(leaf.mutable_grad(), {}));
    }
  }
  Gradients out;
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    const bool trains = leaves[p].requires_grad();
    out.push_back(trains ? values_of(sum_of(each, p, c)) : std::vector<float>());
  }
  return out;
}

fsdp::UnitPlan plan_of(const ModelSettings& m, const Case& c) {
  auto plan = fsdp::make_unit_plan(describe_model(m), fsdp::parse_wrap(c.wrap), c.unit);
  for (std::size_t u = 0; u < plan.units.size() && !c.in_turn.empty(); ++u)
    plan.units[u].options = c.in_turn[u % c.in_turn.size()];
  return plan;
}

Gradients sharded(const ModelSettings& m, const Case& c) {
  const auto tree = describe_model(m);
  const auto plan = plan_of(m, c);
  Gradients g(tree.parameters.size());
  for (std::size_t p = 0; p < g.size(); ++p)
    if (tree.parameters[p].trainable)
      g[p].assign(static_cast<std::size_t>(tree.parameters[p].numel()), std::numeric_limits<float>::quiet_NaN());
  std::mutex mutex;
  const auto body = [&](fsdp::RankWorld& w) {
    at::set_num_threads(1);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    const auto model = build_model(m, false);
    for (fsdp::Module* module : fsdp::modules_of(*model)) module->set_checkpointed(c.checkpoint && module->is_block());
    fsdp::ShardedModel sharded(*model, plan, {.meta = false, .seed = kSeed, .scheduler = c.schedule}, w.device,
                               w.collectives, nullptr);
    const fsdp::MicroBatches micro_batches{c.micro_batches, c.sync_every};
    for (int step = 0; step < 2; ++step) {  // the second follows the recorded order
      sharded.scheduler().begin_step();
      for (int k = 0; k < c.micro_batches; ++k) {
        sharded.scheduler().set_gradient_sync(micro_batches.sync(k));
        backward(*model, batch_of(m, k * c.world + w.rank), c.micro_batches);
        sharded.scheduler().end_backward();
      }
      if (step == 0) {
        sharded.scheduler().begin_optimizer();
        sharded.scheduler().end_optimizer();
      }
    }
    const std::lock_guard lock(mutex);
    for (fsdp::UnitId u = 0; u < sharded.unit_count(); ++u) {
      if (!sharded.shard(u).trains) continue;
      const auto* flat = sharded.shard(u).gradients.const_data_ptr<float>();
      for (std::size_t i = 0; i < sharded.parameter_count(u); ++i) {
        const auto s = sharded.parameter_shard(u, i);
        if (!s.parameter->trainable) continue;
        auto& to = g[static_cast<std::size_t>(s.parameter->index)];
        std::copy_n(flat + s.gradient_at, s.range.end - s.range.begin, to.begin() + s.range.begin);
      }
    }
  };
  fsdp::run_ranks(c.world, fsdp::groups_of(plan, c.world), body, 60'000'000'000,
                  c.schedule.own_reduce_scatter_communicator);
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
      Case c;
      c.world = world;
      const Gradients want = unsharded(small(family), c);
      for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
        for (const std::string wrap : {"root", "block", "blocks:2", "sublayer", "class:Linear"}) {
          SCOPED_TRACE(family + " " + wrap + " over " + std::to_string(world) +
                       (layout == fsdp::Layout::kFlat ? "" : " per parameter"));
          c.wrap = wrap, c.unit.layout = layout;
          EXPECT_EQ(sharded(small(family), c), want);
        }
      }
    }
  }
}

TEST(ShardedGradients, OfEveryFamilyEqualTheUnshardedOnes) {
  for (const Family& family : families()) {
    for (const bool tied : {false, true}) {
      const ModelSettings m = small(family.name, tied);
      for (const int world : {2, 4}) {
        Case c;
        c.world = world;
        const Gradients want = unsharded(m, c);
        for (const std::string wrap : {"root", "block", "sublayer"}) {
          for (const bool again : {false, true}) {
            SCOPED_TRACE(m.family + (tied ? " tied " : " ") + wrap + " over " + std::to_string(world) +
                         (again ? ", computed again" : ""));
            c.wrap = wrap, c.checkpoint = again;
            c.unit.layout = world == 2 ? fsdp::Layout::kFlat : fsdp::Layout::kPerParameter;
            EXPECT_EQ(sharded(m, c), want);
          }
        }
      }
    }
  }
}

// What passes from block to block beside the activations: the bias of the first, what the encoder gave.
TEST(ShardedGradients, OfT5DoNotDependOnWhereUnitsBegin) {
  const ModelSettings m = small("t5", true);
  Case c;
  const Gradients want = unsharded(m, c);
  for (const std::string wrap : {"blocks:2", "class:Linear", "class:Linear,Embedding", "class:T5Attention,T5Stack"}) {
    for (const auto strategy : {fsdp::Strategy::kFullShard, fsdp::Strategy::kShardGradOp, fsdp::Strategy::kNoShard}) {
      for (const bool again : {false, true}) {
        for (const auto prefetch : {fsdp::BackwardPrefetch::kPre, fsdp::BackwardPrefetch::kNone}) {
          SCOPED_TRACE(wrap + " " + std::string(fsdp::name_of(strategy)) + (again ? ", computed again" : ""));
          c.wrap = wrap, c.unit.strategy = strategy, c.checkpoint = again;
          c.schedule.backward_prefetch = prefetch;
          EXPECT_EQ(sharded(m, c), want);
        }
      }
    }
  }
}

// Parameters that do not train: in every unit, a unit in the middle, the units from the start on.
constexpr const char* kFrozen[] = {"*norm.weight+*q_proj.weight", "model.layers.1.*", "*embed_tokens.*+*.0.*+*.1.mlp*"};

TEST(ShardedGradients, OfModelsThatTrainInPartEqualTheUnshardedOnes) {
  for (const char* frozen : kFrozen) {
    ModelSettings m = small("llama");
    m.frozen = frozen;
    Case c;
    const Gradients want = unsharded(m, c);
    for (const std::string wrap : {"root", "block", "sublayer", "class:Linear"}) {
      for (const bool again : {false, true}) {
        for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
          SCOPED_TRACE(std::string(frozen) + " " + wrap + (again ? ", computed again" : ""));
          c.wrap = wrap, c.checkpoint = again, c.unit.layout = layout;
          EXPECT_EQ(sharded(m, c), want);
        }
      }
    }
  }
}

TEST(ShardedGradients, AreWithinRoundingOfTheUnshardedOnesForThreeRanks) {
  Case c;
  c.world = 3;
  const Gradients want = unsharded(small("llama"), c);
  for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter})
    for (const std::string wrap : {"root", "block", "class:Linear"}) {
      c.wrap = wrap, c.unit.layout = layout;
      EXPECT_LT(largest_distance(sharded(small("llama"), c), want), 1e-6) << wrap;
    }
}

TEST(ShardedGradients, DoNotDependOnTheStrategy) {
  Case c;
  const Gradients want = unsharded(small("gpt-neox"), c);
  for (const auto strategy : {fsdp::Strategy::kShardGradOp, fsdp::Strategy::kNoShard}) {
    for (const std::string wrap : {"root", "block"}) {
      c.wrap = wrap, c.unit.strategy = strategy;
      EXPECT_EQ(sharded(small("gpt-neox"), c), want) << fsdp::name_of(strategy) << " " << wrap;
    }
  }
}

TEST(ShardedGradients, OfHybridGroupsAreReducedAcrossGroups) {
  for (const auto strategy : {fsdp::Strategy::kHybridShard, fsdp::Strategy::kHybridShardZero2}) {
    for (const int group : {1, 2, 4}) {
      for (const bool every : {false, true}) {
        Case c;
        c.world = 4, c.unit.strategy = strategy, c.unit.group = group, c.micro_batches = 2, c.sync_every = every;
        Case reference = c;
        // Partial sums of the groups are added over micro-batches before the groups are.
        if (every && group == 2) reference.sync_every = true;
        const Gradients want = unsharded(small("llama"), reference);
        for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
          c.unit.layout = layout;
          const Gradients got = sharded(small("llama"), c);
          SCOPED_TRACE(std::string(fsdp::name_of(strategy)) + ":" + std::to_string(group) + (every ? " every" : ""));
          if (every && group == 2)
            EXPECT_LT(largest_distance(got, want), 1e-6);
          else
            EXPECT_EQ(got, want);
        }
      }
    }
  }
}

TEST(ShardedGradients, AcceptGroupsToReshardTo) {
  Case c;
  c.world = 4;
  const Gradients want = unsharded(small("llama"), c);
  c.unit.reshard_after_forward = true, c.unit.reshard_group = 2;
  for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
    for (const std::string wrap : {"root", "block", "class:Linear"}) {
      c.wrap = wrap, c.unit.layout = layout;
      EXPECT_EQ(sharded(small("llama"), c), want) << wrap;
    }
  }
}

TEST(ShardedGradients, OfMicroBatchesAreSummedWhateverTheSync) {
  for (const auto strategy : {fsdp::Strategy::kFullShard, fsdp::Strategy::kShardGradOp, fsdp::Strategy::kNoShard}) {
    for (const bool every : {false, true}) {
      for (const int world : {1, 2}) {
        Case c;
        c.world = world, c.unit.strategy = strategy, c.micro_batches = 4, c.sync_every = every;
        SCOPED_TRACE(std::string(fsdp::name_of(strategy)) + (every ? " every" : " last") + " over " +
                     std::to_string(world));
        const Gradients want = unsharded(small("llama"), c);
        EXPECT_EQ(sharded(small("llama"), c), want);
        c.unit.layout = fsdp::Layout::kPerParameter;
        EXPECT_EQ(sharded(small("llama"), c), want);
      }
    }
  }
}

TEST(ShardedGradients, OfRecomputedBlocksAreTheSame) {
  for (const std::string family : {"llama", "gpt-neox"}) {
    Case c;
    const Gradients want = unsharded(small(family), c);
    c.checkpoint = true;
    for (const std::string wrap : {"root", "block", "blocks:2", "sublayer", "class:Linear"}) {
      c.wrap = wrap;
      EXPECT_EQ(sharded(small(family), c), want) << family << " " << wrap;
    }
  }
}

TEST(ShardedGradients, OfTiedWeightsAreSummed) {
  for (const std::string family : {"llama", "gpt-neox"}) {
    const ModelSettings m = small(family, true);
    Case c;
    const Gradients want = unsharded(m, c);
    for (const std::string wrap : {"root", "block"}) {
      c.wrap = wrap;
      EXPECT_EQ(sharded(m, c), want) << family << " " << wrap;
    }
  }
}

TEST(ShardedGradients, OfHalfPrecisionAreWithinItsRounding) {
  Case c;
  const Gradients want = unsharded(small("llama"), c);
  for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
    for (const auto strategy : {fsdp::Strategy::kFullShard, fsdp::Strategy::kNoShard}) {
      for (const auto reduce : {fsdp::Dtype::kFloat32, fsdp::Dtype::kBFloat16}) {
        c.unit.layout = layout, c.unit.strategy = strategy;
        c.unit.param_dtype = fsdp::Dtype::kBFloat16, c.unit.reduce_dtype = reduce;
        EXPECT_LT(largest_distance(sharded(small("llama"), c), want), 3e-2);
      }
    }
  }
}

TEST(ShardedGradients, OfHybridGroupsInHalfPrecisionAreWithinItsRounding) {
  Case c;
  c.world = 4, c.unit.strategy = fsdp::Strategy::kHybridShard, c.unit.group = 2, c.micro_batches = 2;
  const Gradients want = unsharded(small("llama"), c);
  for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
    for (const bool every : {false, true}) {
      c.unit.layout = layout, c.sync_every = every;
      c.unit.param_dtype = c.unit.reduce_dtype = fsdp::Dtype::kBFloat16;
      EXPECT_LT(largest_distance(sharded(small("llama"), c), want), 3e-2);
    }
  }
}

// Sums of groups are made group by group: what each unit's gradients are is what its own group size says.
TEST(ShardedGradients, OfGroupsOfSeveralSizesInOnePlanAreEachTheirSizes) {
  using fsdp::Strategy;
  const ModelSettings m = small("llama");
  Case c;
  c.world = 8, c.wrap = "class:Linear";
  c.in_turn = {{},
               {.strategy = Strategy::kHybridShard, .group = 2},
               {.strategy = Strategy::kHybridShardZero2, .group = 4},
               {.reshard_after_forward = true, .reshard_group = 2},
               {.strategy = Strategy::kNoShard},
               {.strategy = Strategy::kHybridShard, .group = 4, .reshard_after_forward = true, .reshard_group = 2},
               {.reshard_after_forward = true, .reshard_group = 4}};
  std::map<int, Gradients> by_group;
  for (const int group : {0, 2, 4}) {
    Case whole = c;
    whole.unit.group = group;
    by_group[group] = unsharded(m, whole);
  }
  EXPECT_NE(by_group[0], by_group[2]) << "the order of a sum shows";
  for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
    for (const bool own : {false, true}) {
      for (fsdp::UnitOptions& o : c.in_turn) o.layout = layout;
      c.schedule.own_reduce_scatter_communicator = own;
      const auto plan = plan_of(m, c);
      EXPECT_GE(plan.units.size(), c.in_turn.size());
      const Gradients got = sharded(m, c);
      for (const fsdp::UnitSpec& unit : plan.units)
        for (const fsdp::ParameterId p : unit.parameters)
          EXPECT_EQ(got[static_cast<std::size_t>(p)], by_group[unit.options.group][static_cast<std::size_t>(p)])
              << unit.name << (own ? " own" : " shared");
    }
  }
}

// As DDP beside FSDP: hybrid units, and some that all ranks share.
TEST(ShardedGradients, DoNotDependOnTheReduceScatterCommunicator) {
  Case c;
  c.world = 4, c.micro_batches = 2;
  c.in_turn = {{}, {.strategy = fsdp::Strategy::kHybridShard, .group = 2}};
  const Gradients shared = sharded(small("llama"), c);
  c.schedule.own_reduce_scatter_communicator = true;
  EXPECT_EQ(sharded(small("llama"), c), shared);
}

// Units that are whole on every rank are never reduce-scattered: nothing is made for it.
TEST(ShardedGradients, DoNotDependOnTheReduceScatterCommunicatorWhereNothingIsReduceScattered) {
  Case c;
  c.world = 2, c.unit.strategy = fsdp::Strategy::kNoShard;
  const Gradients shared = sharded(small("llama"), c);
  c.schedule.own_reduce_scatter_communicator = true;
  EXPECT_EQ(sharded(small("llama"), c), shared);
}

TEST(ShardedGradients, RefusesGroupsThatDoNotDivide) {
  Case c;
  c.world = 4, c.unit.strategy = fsdp::Strategy::kHybridShard, c.unit.group = 3;
  EXPECT_THROW(sharded(small("llama"), c), fsdp::ConfigError);
  c = {};
  c.world = 4, c.unit.reshard_after_forward = true, c.unit.reshard_group = 3;
  EXPECT_THROW(sharded(small("llama"), c), fsdp::ConfigError);
}

}  // namespace
}  // namespace harness
