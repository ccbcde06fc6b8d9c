// Losses and gradient norms of PyTorch, reproduced by ranks as threads, whatever the wrapping, strategy and prefetch.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"
#include "tests/testing/test_data.h"

namespace harness {
namespace {

struct Golden {
  ModelSettings model;
  std::int64_t batch = 1;
  int world = 1;
  std::uint64_t seed = 0;
  std::vector<double> losses, norms;
};

Golden load(const std::string& name) {
  std::ifstream file(testing_support::test_data() + "/goldens/" + name + ".json");
  const auto json = nlohmann::json::parse(file);
  std::map<std::string, std::string> flags;
  const auto& f = json.at("shardscope_flags");
  for (std::size_t i = 0; i + 1 < f.size(); i += 2) flags[f[i].get<std::string>()] = f[i + 1].get<std::string>();
  Golden g;
  g.model = resolve_model(flags.at("--model"), flags.at("--set"));
  g.model.seq = std::stol(flags.at("--seq"));
  g.batch = std::stol(flags.at("--batch"));
  g.world = std::stoi(flags.at("--world"));
  g.seed = std::stoull(flags.at("--seed"));
  g.losses = json.at("losses").get<std::vector<double>>();
  g.norms = json.at("grad_norms").get<std::vector<double>>();
  return g;
}

struct Curve {
  std::vector<double> losses, norms;
};

Curve train(const Golden& g, const std::string& wrap, const fsdp::UnitOptions& unit,
            const fsdp::SchedulerOptions& schedule, int steps) {
  std::vector<std::vector<StepResult>> results(static_cast<std::size_t>(g.world));
  fsdp::run_ranks(g.world, [&](fsdp::RankWorld& w) {
    fsdp::MemoryMeter meter;
    const auto plan = fsdp::make_unit_plan(describe_model(g.model), fsdp::parse_wrap(wrap), unit);
    TrainerSettings settings;
    settings.model = g.model;
    settings.batch = g.batch;
    settings.seed = g.seed;
    settings.scheduler = schedule;
    Trainer trainer(settings, plan, w.device, w.collectives, meter);
    for (int s = 0; s < steps; ++s) results[static_cast<std::size_t>(w.rank)].push_back(trainer.step());
  });
  Curve run;
  for (int s = 0; s < steps; ++s) {
    double loss = 0.0, squares = 0.0;
    for (const auto& rank : results) {
      loss += rank[static_cast<std::size_t>(s)].loss;
      squares += rank[static_cast<std::size_t>(s)].gradient_square_sum;
    }
    run.losses.push_back(loss / g.world);
    run.norms.push_back(std::sqrt(squares));
  }
  return run;
}

void expect_golden(const Golden& g, const Curve& run) {
  for (std::size_t s = 0; s < run.losses.size(); ++s) {
    EXPECT_NEAR(run.losses[s], g.losses[s], 1e-5 * g.losses[s]) << "step " << s;
    EXPECT_NEAR(run.norms[s], g.norms[s], 1e-4 * g.norms[s]) << "step " << s;
  }
}

TEST(Goldens, EveryFileIsReproducedWithTheDefaults) {
  for (const std::string name : {"tiny_w1", "tiny_w2", "tiny_w3", "tiny_w4", "uneven_w3", "small_w1", "small_w2"}) {
    SCOPED_TRACE(name);
    const Golden g = load(name);
    expect_golden(g, train(g, "block", {}, {}, 8));
  }
}

TEST(Goldens, HoldForTheMediumModel) {
  const Golden g = load("medium_w2");
  expect_golden(g, train(g, "block", {}, {}, 3));
}

TEST(Goldens, HoldForEveryWrapping) {
  const Golden g = load("uneven_w3");
  for (const std::string wrap : {"root", "block", "blocks:2", "sublayer", "class:Linear", "class:Linear,Embedding"}) {
    SCOPED_TRACE(wrap);
    expect_golden(g, train(g, wrap, {}, {}, 5));
  }
}

TEST(Goldens, HoldForEveryStrategy) {
  const Golden g = load("tiny_w2");
  for (const auto strategy : {fsdp::Strategy::kFullShard, fsdp::Strategy::kShardGradOp, fsdp::Strategy::kNoShard}) {
    for (const std::string wrap : {"root", "block", "sublayer"}) {
      SCOPED_TRACE(std::string(fsdp::name_of(strategy)) + " " + wrap);
      fsdp::UnitOptions unit;
      unit.strategy = strategy;
      expect_golden(g, train(g, wrap, unit, {}, 5));
    }
  }
}

TEST(Goldens, HoldForEveryPrefetch) {
  const Golden g = load("tiny_w2");
  using fsdp::BackwardPrefetch;
  for (const int forward : {0, 1, 3}) {
    for (const auto& [backward, depth] : {std::pair{BackwardPrefetch::kNone, 1}, std::pair{BackwardPrefetch::kPost, 1},
                                          std::pair{BackwardPrefetch::kPre, 1}, std::pair{BackwardPrefetch::kPre, 2}}) {
      fsdp::SchedulerOptions o;
      o.forward_prefetch = forward;
      o.backward_prefetch = backward;
      o.backward_depth = depth;
      o.max_inflight = fsdp::auto_gate(forward, backward, depth);
      expect_golden(g, train(g, "sublayer", {}, o, 5));
    }
  }
}

TEST(Goldens, ResultsDoNotDependOnTheSchedule) {
  const Golden g = load("uneven_w3");
  fsdp::SchedulerOptions on_demand;
  on_demand.forward_prefetch = 0;
  on_demand.backward_prefetch = fsdp::BackwardPrefetch::kNone;
  on_demand.reduce_scatter_slots = 1;
  const Curve a = train(g, "sublayer", {}, {}, 4), b = train(g, "root", {}, on_demand, 4);
  EXPECT_EQ(a.losses, b.losses);
}

}  // namespace
}  // namespace harness
