// One rank that does something else: an error on every rank that names both sides, within the step, never a hang.
#include <gmock/gmock.h>

#include <random>

#include "fsdp/core/errors.h"
#include "fsdp/module/fully_shard.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"
#include "fsdp/plan/wrap_policy.h"
#include "tests/module/ranks.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

constexpr Count kWidth = 8;

class Square final : public Module {
 public:
  Square() : Module("Square") { add_parameter("weight", {kWidth, kWidth}, InitRule::kUniform); }

 protected:
  Tensors forward(Tensors inputs) override {
    inputs[0] = ops::linear(inputs[0], parameters()[0].second->read(), {});
    return inputs;
  }
};

// Squares that run one after the other, but for those that are skipped.
class Chain final : public Module {
 public:
  Chain(int n, int skipped) : Module("Chain"), skipped_(skipped) {
    for (int i = 0; i < n; ++i) add_child<Square>("square" + std::to_string(i)).mark_block();
  }

 protected:
  Tensors forward(Tensors inputs) override {
    for (int i = 0; i < static_cast<int>(children().size()); ++i)
      if (i != skipped_) inputs = (*children()[static_cast<std::size_t>(i)].second)(std::move(inputs));
    return inputs;
  }

 private:
  const int skipped_;
};

// What a rank is told to do.
struct Task {
  int units = 3, skipped = -1;
  std::string wrap = "block";
  UnitOptions unit;
};

void step(RankWorld& w, const Task& task) {
  Chain model(task.units, task.skipped);
  name_modules(model);
  const UnitPlan plan = make_unit_plan(tree_of(model), parse_wrap(task.wrap), task.unit);
  ShardedModel sharded(model, plan, {}, w.device, w.collectives, nullptr);
  try {
    Scheduler& scheduler = sharded.scheduler();
    scheduler.begin_step();
    Tensors inputs;
    inputs.push_back(at::ones({1, 4, kWidth}, at::kFloat));
    const at::Tensor y = model(std::move(inputs))[0];
    at::mul(y, y).sum().backward();
    scheduler.end_backward();
    scheduler.begin_optimizer();
    scheduler.end_optimizer();
    const auto all = w.collectives.exchange(scheduler.step_hash());
    for (std::size_t r = 0; r < all.size(); ++r)
      if (all[r] != scheduler.step_hash())
        throw CommError("rank " + std::to_string(w.rank) + " and rank " + std::to_string(r) + " disagree");
  } catch (const std::exception& e) {
    w.collectives.abort(e.what());
    w.device.cancel();
    throw;
  }
}

// What each rank's step ended with; empty: well.
std::vector<std::string> outcomes(const std::vector<Task>& tasks) {
  const int world = static_cast<int>(tasks.size());
  std::vector<std::string> texts(tasks.size());
  try {
    run_ranks(
        world, {},
        [&](RankWorld& w) {
          const auto rank = static_cast<std::size_t>(w.rank);
          try {
            step(w, tasks[rank]);
          } catch (const std::exception& e) {
            texts[rank] = e.what();
            throw;
          }
        },
        10'000'000'000);
  } catch (const std::exception&) {
  }
  return texts;
}

bool names_the_odd_one_and_another(const std::string& text, int odd, int world) {
  const auto names = [&](int rank) { return text.find("rank " + std::to_string(rank)) != std::string::npos; };
  for (int rank = 0; rank < world; ++rank)
    if (rank != odd && names(rank) && names(odd)) return true;
  return false;
}

TEST(Divergence, OfOneRankIsAnErrorOnEveryRankThatNamesBothSides) {
  const std::vector<std::string> wraps = {"root", "block", "blocks:2"};
  int kinds[3] = {0, 0, 0};
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int world = 2 + pick(3), odd = pick(world), kind = pick(3);
    Task common;
    common.units = 3 + pick(3);
    common.wrap = kind == 1 ? wraps[static_cast<std::size_t>(pick(3))] : "block";
    common.unit.layout = pick(2) == 0 ? Layout::kFlat : Layout::kPerParameter;
    if (pick(3) == 0) common.unit.strategy = Strategy::kShardGradOp;
    std::vector<Task> tasks(static_cast<std::size_t>(world), common);
    Task& other = tasks[static_cast<std::size_t>(odd)];
    if (kind == 0) other.skipped = pick(common.units);
    if (kind == 1) do
        other.wrap = wraps[static_cast<std::size_t>(pick(3))];
      while (other.wrap == common.wrap);
    if (kind == 2) (pick(2) == 0 ? other.unit.param_dtype : other.unit.reduce_dtype) = Dtype::kBFloat16;
    ++kinds[kind];
    const std::vector<std::string> texts = outcomes(tasks);
    for (const std::string& text : texts) {
      EXPECT_TRUE(names_the_odd_one_and_another(text, odd, world))
          << "seed " << seed << ", kind " << kind << ", rank " << odd << " of " << world << ": "
          << testing::PrintToString(texts);
      EXPECT_THAT(text, testing::Not(HasSubstr("waited"))) << "seed " << seed;
    }
  }
  for (const int n : kinds) EXPECT_GT(n, 40) << "each kind is tried";
}

TEST(Divergence, RanksThatAgreeEndWell) {
  EXPECT_THAT(outcomes(std::vector<Task>(3)), testing::Each(testing::IsEmpty()));
}

}  // namespace
}  // namespace fsdp
