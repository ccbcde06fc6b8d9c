// What `plan` predicts is what the runtime counts, to the byte, in every category but activations.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/call.h"

namespace {

using cli_test::call;
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

}  // namespace
