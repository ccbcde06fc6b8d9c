// Whole training steps with plain values: clipping, half precision, micro-batches against ranks, saved states, ranks
// that disagree.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "fsdp/core/errors.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/describe.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"

namespace harness {
namespace {

using fsdp::Layout;
using fsdp::Strategy;
using testing::HasSubstr;

ModelSettings uneven() {
  ModelSettings m;
  m.layers = 2, m.dim = 24, m.heads = 2, m.kv_heads = 1, m.ffn = 35, m.vocab = 67, m.seq = 9;
  return m;
}

struct Job {
  int world = 1;
  std::string wrap = "block", plan;  // plan: the content of plan:FILE
  fsdp::UnitOptions unit;
  TrainerSettings settings;
};
Job job_of(int world, int accumulate = 1) {
  Job r;
  r.world = world;
  r.settings.model = uneven();
  r.settings.seed = 7;
  r.settings.accumulate = accumulate;
  return r;
}

fsdp::UnitPlan plan_of(const Job& r) {
  return fsdp::make_unit_plan(describe_model(r.settings.model), fsdp::parse_wrap(r.wrap, r.plan), r.unit);
}

struct Curve {
  std::vector<double> losses, norms;
};
using Between = std::function<void(Trainer&, int step)>;  // before each step

Curve train(const Job& r, int steps, const Between& between = {}) {
  const fsdp::UnitPlan plan = plan_of(r);
  std::vector<std::vector<StepResult>> results(static_cast<std::size_t>(r.world));
  fsdp::run_ranks(r.world, fsdp::groups_of(plan, r.world), [&](fsdp::RankWorld& w) {
    fsdp::MemoryMeter meter;
    Trainer trainer(r.settings, plan, w.device, w.collectives, meter);
    for (int s = 0; s < steps; ++s) {
      if (between) between(trainer, s);
      results[static_cast<std::size_t>(w.rank)].push_back(trainer.step());
    }
  });
  Curve c;
  for (std::size_t s = 0; s < static_cast<std::size_t>(steps); ++s) {
    double loss = 0.0, squares = 0.0;
    for (const auto& rank : results) loss += rank[s].loss, squares += rank[s].gradient_square_sum;
    c.losses.push_back(loss / r.world);
    c.norms.push_back(std::sqrt(squares));
  }
  return c;
}

void expect_near(const Curve& got, const Curve& want, double tolerance = 1e-5) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t s = 0; s < want.losses.size(); ++s) {
    EXPECT_NEAR(got.losses[s], want.losses[s], tolerance * want.losses[s]) << "step " << s;
    EXPECT_NEAR(got.norms[s], want.norms[s], 2 * tolerance * want.norms[s]) << "norm, step " << s;
  }
}

// Four ranks, and one that works through the same four batches.
std::vector<Job> ways_to_share(int world) {
  std::vector<Job> runs;
  for (const auto layout : {Layout::kFlat, Layout::kPerParameter}) {
    for (const auto& [strategy, group] :
         {std::pair{Strategy::kFullShard, 0}, {Strategy::kNoShard, 0}, {Strategy::kHybridShard, 2}}) {
      Job r = job_of(world);
      r.unit.layout = layout, r.unit.strategy = strategy, r.unit.group = group;
      runs.push_back(r);
    }
  }
  return runs;
}

TEST(Training, MicroBatchesAndRanksAreTheSameGlobalBatch) {
  const Curve want = train(job_of(1, 4), 4);
  expect_near(train(job_of(2, 2), 4), want);
  for (const Job& r : ways_to_share(4)) expect_near(train(r, 4), want);
}

TEST(Training, LossesOfEveryFamilyFallAndDoNotDependOnTheRanks) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const auto job = [&](int world, int accumulate) {
      Job r = job_of(world, accumulate);
      ModelSettings& m = r.settings.model;
      m.family = family.name;
      m.kv_heads = m.heads, m.positions = 9, m.classes = 5, m.rotary_pct = 0.5;
      r.wrap = "sublayer";
      return r;
    };
    const Curve alone = train(job(1, 4), 5);
    EXPECT_LT(alone.losses.back(), alone.losses.front());
    for (std::size_t s = 1; s < 5; ++s) EXPECT_LT(alone.losses[s], alone.losses[s - 1]) << "step " << s;
    expect_near(train(job(4, 1), 5), alone);
  }
}

TEST(Training, TheNormIsGlobalAndGradientsAreClippedToIt) {  // case C20
  const auto clipped = [](Job r) {
    r.settings.optimizer = fsdp::OptimizerKind::kSgd;
    r.settings.clip = 0.05;
    return r;
  };
  Job free_run = clipped(job_of(1, 4));
  free_run.settings.clip.reset();
  const Curve want = train(clipped(job_of(1, 4)), 4), unclipped = train(free_run, 4);
  EXPECT_GT(want.norms[0], 0.05) << "low enough to clip";
  EXPECT_EQ(want.norms[0], unclipped.norms[0]) << "the norm reported is that before clipping";
  EXPECT_GT(want.losses[3] - unclipped.losses[3], 1e-4) << "smaller steps";
  for (const Job& r : ways_to_share(4)) expect_near(train(clipped(r), 4), want);
  // SGD moves by lr * clip * gradient / norm: to first order the loss falls by lr * clip * norm.
  EXPECT_NEAR(want.losses[0] - want.losses[1], 1e-3 * 0.05 * want.norms[0], 2e-2 * 1e-3 * 0.05 * want.norms[0]);
}

TEST(Training, HalfPrecisionFollowsFullPrecision) {
  const Curve want = train(job_of(2), 6);
  for (const auto reduce : {fsdp::Dtype::kFloat32, fsdp::Dtype::kBFloat16}) {
    for (const auto layout : {Layout::kFlat, Layout::kPerParameter}) {
      Job r = job_of(2);
      r.unit.param_dtype = fsdp::Dtype::kBFloat16, r.unit.reduce_dtype = reduce, r.unit.layout = layout;
      expect_near(train(r, 6), want, 2e-2);
    }
  }
}

TEST(Training, HalfPrecisionFollowsFullPrecisionAcrossGroups) {
  for (const bool every : {false, true}) {
    Job full = job_of(4, 2);
    full.settings.sync_every = every;
    full.unit.strategy = Strategy::kHybridShard, full.unit.group = 2;
    const Curve want = train(full, 6);
    for (const auto layout : {Layout::kFlat, Layout::kPerParameter}) {
      for (const auto strategy : {Strategy::kHybridShard, Strategy::kHybridShardZero2}) {
        Job r = full;
        r.unit.strategy = strategy, r.unit.layout = layout;
        r.unit.param_dtype = r.unit.reduce_dtype = fsdp::Dtype::kBFloat16;
        expect_near(train(r, 6), want, 2e-2);
      }
    }
  }
}

TEST(Training, SeveralStrategiesAndTypesInOnePlan) {
  Job r = job_of(8);
  r.wrap = "plan:mixed.yaml";
  r.plan =
      "units:\n"
      "  - {match: \"model.layers.0\", strategy: \"hybrid_shard:2\", param_dtype: bf16}\n"
      "  - {match: \"model.layers.1\", strategy: no_shard}\n"
      "  - {match: \"model.embed_tokens\", strategy: \"hybrid_shard_zero2:4\"}\n"
      "  - {match: \"lm_head\", reshard_after_forward: 2}\n";
  expect_near(train(r, 4), train(job_of(1, 8), 4), 2e-2);
}

// ---- saved states

class Saved : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = (std::filesystem::temp_directory_path() / ("shardscope_state_" + std::to_string(getpid()))).string();
  }
  void TearDown() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::remove_all(directory_ + ".tmp");
  }
  Between save_before(int step) const {
    return [=, d = directory_](Trainer& t, int s) {
      if (s == step) t.save(d);
    };
  }
  Between load_before(int step) const {
    return [=, d = directory_](Trainer& t, int s) {
      if (s == step) t.load(d);
    };
  }
  std::string directory_;
};

TEST_F(Saved, AnotherWorldPlanAndLayoutGoesOnWhereItWasLeft) {
  Job saver = job_of(4);
  const Curve all = train(saver, 5, save_before(3));
  const Curve rest{{all.losses[3], all.losses[4]}, {all.norms[3], all.norms[4]}};
  for (const auto& [world, accumulate] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
    for (const std::string wrap : {"block", "class:Linear"}) {
      for (const auto layout : {Layout::kFlat, Layout::kPerParameter}) {
        Job r = job_of(world, accumulate);
        r.wrap = wrap, r.unit.layout = layout;
        expect_near(train(r, 2, load_before(0)), rest);
      }
    }
  }
  Job whole = job_of(4);
  whole.unit.strategy = Strategy::kNoShard;
  expect_near(train(whole, 2, load_before(0)), rest);
}

TEST_F(Saved, TheSameRunGoesOnBitForBit) {
  Job r = job_of(2);
  r.unit.layout = Layout::kPerParameter;
  const Curve all = train(r, 5, save_before(3));
  const Curve rest = train(r, 2, load_before(0));
  EXPECT_EQ(rest.losses, std::vector<double>(all.losses.begin() + 3, all.losses.end()));
}

TEST_F(Saved, WhatACrashLeftBehindDoesNoHarm) {
  const Curve first = train(job_of(2), 4, save_before(2));
  std::filesystem::create_directories(directory_ + ".tmp");
  std::ofstream(directory_ + ".tmp/rank-00000-of-00002.safetensors") << "cut";
  EXPECT_EQ(train(job_of(2), 1, load_before(0)).losses[0], first.losses[2]) << "the previous state is whole";
  train(job_of(2), 4, save_before(3));
  EXPECT_EQ(train(job_of(2), 1, load_before(0)).losses[0], first.losses[3]) << "and the next one replaces it";
  EXPECT_FALSE(std::filesystem::exists(directory_ + ".tmp"));
}

TEST_F(Saved, WhatDoesNotFitIsRefusedOnEveryRank) {
  train(job_of(2), 1, save_before(0));
  Job other = job_of(2);
  other.settings.model.ffn = 40;
  EXPECT_THROW(train(other, 1, load_before(0)), fsdp::ConfigError);
  std::filesystem::remove(directory_ + "/rank-00001-of-00002.safetensors");
  EXPECT_THROW(train(job_of(2), 1, load_before(0)), fsdp::ConfigError);
  std::filesystem::resize_file(directory_ + "/rank-00000-of-00002.safetensors", 2000);
  EXPECT_THROW(train(job_of(2), 1, load_before(0)), fsdp::ConfigError);
  EXPECT_THROW(train(job_of(2), 1, [](Trainer& t, int) { t.load("/nowhere/at/all"); }), fsdp::EnvironmentError);
  EXPECT_THROW(train(job_of(2), 1, [](Trainer& t, int) { t.save("/proc/state"); }), std::exception);
}

// ---- ranks that disagree

// What each rank's step ended with.
std::vector<std::string> messages(const std::vector<Job>& ranks) {
  const int world = static_cast<int>(ranks.size());
  std::vector<std::string> out(ranks.size());
  try {
    fsdp::run_ranks(
        world, {},
        [&](fsdp::RankWorld& w) {
          try {
            const Job& r = ranks[static_cast<std::size_t>(w.rank)];
            fsdp::MemoryMeter meter;
            Trainer trainer(r.settings, plan_of(r), w.device, w.collectives, meter);
            try {
              trainer.step();
              const auto hashes = w.collectives.exchange(trainer.scheduler().step_hash());
              if (std::count(hashes.begin(), hashes.end(), hashes[0]) != world)
                throw fsdp::CommError("[agreement] the ranks have issued different collectives");
            } catch (...) {
              w.collectives.abort("rank " + std::to_string(w.rank) + " failed");
              w.device.cancel();
              throw;
            }
          } catch (const std::exception& e) {
            out[static_cast<std::size_t>(w.rank)] = e.what();
            throw;
          }
        },
        10'000'000'000);
  } catch (const std::exception&) {
  }
  return out;
}

TEST(Divergence, AnotherPlanOnOneRankIsAnErrorThatNamesBothSides) {
  Job odd = job_of(2);
  odd.wrap = "class:Linear";
  for (const std::string& text : messages({job_of(2), odd})) {
    EXPECT_THAT(text, HasSubstr("rank 0"));
    EXPECT_THAT(text, HasSubstr("rank 1"));
  }
}

TEST(Divergence, AnotherTypeOnOneRankIsAnErrorThatNamesBothSides) {
  Job odd = job_of(2);
  odd.unit.param_dtype = fsdp::Dtype::kBFloat16;
  for (const std::string& text : messages({odd, job_of(2)})) {
    EXPECT_THAT(text, HasSubstr("rank 0"));
    EXPECT_THAT(text, HasSubstr("rank 1"));
  }
}

TEST(Divergence, AnyDifferenceEndsWithinTheStepOnEveryRank) {
  std::mt19937 random(20240613);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<std::string> wraps = {"root", "block", "blocks:2", "sublayer", "class:Linear"};
  const auto any = [&](int world) {
    Job r = job_of(world);
    r.settings.model.layers = 1 + pick(2), r.settings.model.dim = 8, r.settings.model.ffn = 9;
    r.settings.model.vocab = 11, r.settings.model.seq = 3;
    r.wrap = wraps[static_cast<std::size_t>(pick(5))];
    r.unit.strategy = pick(4) == 0 ? Strategy::kNoShard : pick(2) == 0 ? Strategy::kFullShard : Strategy::kShardGradOp;
    r.unit.param_dtype = pick(3) == 0 ? fsdp::Dtype::kBFloat16 : fsdp::Dtype::kFloat32;
    r.unit.layout = pick(3) == 0 ? Layout::kPerParameter : Layout::kFlat;
    r.settings.accumulate = 1 + pick(2);
    r.settings.checkpoint = pick(2) == 0;
    r.settings.scheduler.forward_prefetch = pick(3);
    return r;
  };
  int failed = 0;
  for (int round = 0; round < 200; ++round) {
    const int world = 2 + pick(2);
    std::vector<Job> ranks(static_cast<std::size_t>(world), any(world));
    ranks[static_cast<std::size_t>(pick(world))] = any(world);
    const std::vector<std::string> texts = messages(ranks);
    const auto errors = std::count_if(texts.begin(), texts.end(), [](const auto& t) { return !t.empty(); });
    EXPECT_TRUE(errors == 0 || errors == world) << "round " << round << ": " << testing::PrintToString(texts);
    for (const std::string& t : texts) EXPECT_THAT(t, testing::Not(HasSubstr("waited"))) << "round " << round;
    failed += errors > 0;
  }
  EXPECT_GT(failed, 100) << "most differences matter";
}

}  // namespace
}  // namespace harness
