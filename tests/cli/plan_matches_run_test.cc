// What `plan` predicts is what the runtime counts, to the byte, in every category but activations.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/call.h"

namespace {

using cli_test::call;
using cli_test::Called;
using nlohmann::json;

class PlanMatchesRun : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(PlanMatchesRun, InEveryCategoryOnEveryRank) {
  std::vector<std::string> settings = GetParam();
  settings.insert(settings.end(), {"--steps", "2", "--warmup", "1", "--json"});
  std::vector<std::string> plan = {"plan"}, run = {"run"};
  plan.insert(plan.end(), settings.begin(), settings.end());
  run.insert(run.end(), settings.begin(), settings.end());
  const json p = json::parse(call(plan).out);
  const json r = json::parse(call(run, {{"SHARDSCOPE_RANK", SHARDSCOPE_RANK_PROGRAM}}).out);
  ASSERT_EQ(r["status"], "ok") << r["reason"];
  EXPECT_EQ(p["units"], r["units"]);
  EXPECT_EQ(p["largest_unit_bytes"], r["largest_unit_bytes"]);
  EXPECT_EQ(p["case"], r["case"]);
  for (std::size_t i = 0; i < p["unit_table"].size(); ++i) {
    for (const char* key : {"name", "parameters", "unsharded_bytes", "shard_bytes", "strategy"})
      EXPECT_EQ(p["unit_table"][i][key], r["unit_table"][i][key]) << i << key;
  }
  ASSERT_GE(r["ranks"].size(), 1u);
  for (const json& rank : r["ranks"]) {
    for (const auto& [category, bytes] : p["memory"]["category_peaks"].items())
      EXPECT_EQ(rank["category_peaks"][category], bytes) << category;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, PlanMatchesRun,
    testing::Values(
        std::vector<std::string>{}, std::vector<std::string>{"--wrap", "root"},
        std::vector<std::string>{"--wrap", "sublayer", "--world", "3"},
        std::vector<std::string>{"--wrap", "blocks:2", "--backward-prefetch", "none"},
        std::vector<std::string>{"--wrap", "class:Linear", "--forward-prefetch", "3"},
        std::vector<std::string>{"--strategy", "shard_grad_op"}, std::vector<std::string>{"--strategy", "no_shard"},
        std::vector<std::string>{"--strategy", "hybrid_shard:2", "--world", "4", "--accumulate", "2",
                                 "--accumulate-sync", "every"},
        std::vector<std::string>{"--reshard-after-forward", "2", "--world", "4", "--layout", "per_parameter",
                                 "--param-dtype", "bf16"},
        std::vector<std::string>{"--accumulate", "3", "--clip", "0.5", "--wrap", "sublayer", "--checkpoint", "block"},
        std::vector<std::string>{"--param-dtype", "bf16", "--reduce-dtype", "bf16", "--collectives", "gloo"},
        std::vector<std::string>{"--model", "gpt-neox", "--reduce-scatter-slots", "1"},
        std::vector<std::string>{"--set", "tied=true", "--optimizer", "sgd", "--backward-prefetch", "post"}));

TEST(Doctor, SaysThatThisMachineCanRun) {
  const cli_test::Called c = call({"doctor", "--json"}, {{"SHARDSCOPE_RANK", SHARDSCOPE_RANK_PROGRAM}});
  EXPECT_EQ(c.code, 0) << c.out;
  EXPECT_EQ(json::parse(c.out)["can_run"], true);
}

// case N10: a pod of a Kubeflow PyTorchJob has no LOCAL_RANK; a prediction starts no rank at all.
TEST(Prediction, AsksNoLauncher) {
  const std::vector<std::string> run = {"run",     "--device", "virtual", "--world",  "8",
                                        "--steps", "1",        "--set",   "layers=1", "--json"};
  const cli_test::Environment rank = {{"SHARDSCOPE_RANK", SHARDSCOPE_RANK_PROGRAM}};
  const auto with = [&](cli_test::Environment more) {
    more.insert(more.end(), rank.begin(), rank.end());
    return call(run, more);
  };
  const std::string alone = with({}).out;
  const cli_test::Environment incomplete[] = {
      {{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "23456"}, {"WORLD_SIZE", "1"}, {"RANK", "0"}},
      {{"WORLD_SIZE", "2"}, {"RANK", "0"}},
      {{"WORLD_SIZE", "2"}, {"RANK", "1"}},
      {{"OMPI_COMM_WORLD_SIZE", "4"}},
      {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}},
      {{"TORCHELASTIC_RUN_ID", "none"}}};
  for (const auto& e : incomplete) {
    const Called c = with(e);
    EXPECT_EQ(c.code, 0) << e.front().first << ": " << c.err;
    EXPECT_EQ(json::parse(c.out)["settings"]["world"], "8");
    EXPECT_EQ(json::parse(c.out)["step_ns"], json::parse(alone)["step_ns"]);
  }
  const Called second = with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}});
  EXPECT_EQ(second.code, 0);
  EXPECT_EQ(second.out + second.err, "");
}

}  // namespace
