#include "harness/cli/plan_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "fsdp/core/errors.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;

PlanView plan(const std::vector<std::pair<std::string, std::string>>& pairs) {
  CaseSettings c;
  for (const auto& [name, text] : pairs) apply_setting(c, name, text);
  return make_plan_view(c);
}

// 8 blocks of 1,049,088 parameters, table and head of 8,192,000, norm 256: 24,776,960 in all.
const std::pair<std::string, std::string> kM = {"set",
                                                "layers=8,dim=256,heads=8,kv_heads=8,ffn=1024,vocab=32000,tied=false"};

TEST(PlanView, RowsSumToTheTotalsExactly) {
  for (const char* wrap : {"root", "block", "blocks:3", "sublayer", "class:Linear", "size:1000000"}) {
    for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
      const PlanView v = plan({kM, {"wrap", wrap}, {"strategy", strategy}, {"world", "3"}});
      EXPECT_EQ(std::accumulate(v.at_peak.begin(), v.at_peak.end(), fsdp::Bytes{0}), v.peak_bytes) << wrap;
      std::int64_t parameters = 0;
      double share = 0;
      for (const PlanUnit& u : v.units) {
        parameters += u.parameters, share += u.share;
        const fsdp::Bytes ranks = std::string(strategy) == "no_shard" ? 1 : 3;
        EXPECT_EQ(u.unsharded_bytes, ranks * u.shard_bytes);
        EXPECT_EQ(u.unsharded_bytes, 4 * u.parameters + u.padding_bytes);
        EXPECT_EQ(u.optimizer_bytes, 2 * u.shard_bytes);
      }
      EXPECT_EQ(parameters, 24'776'960) << wrap;
      EXPECT_NEAR(share, 1.0, 1e-12);
    }
  }
}

TEST(PlanView, OneUnitHoldsAllWhenTheThresholdIsAboveTheModel) {
  const PlanView v = plan({kM, {"wrap", "size:100000000"}});
  ASSERT_EQ(v.units.size(), 1u);
  EXPECT_EQ(v.units[0].unsharded_bytes, 99'107'840);
  EXPECT_EQ(v.units[0].reduce_bytes, 99'107'840);
  EXPECT_THAT(v.notes, testing::Not(testing::IsEmpty()));
  EXPECT_EQ(plan({kM, {"wrap", "block"}}).units[1].unsharded_bytes, 4'196'352);
}

TEST(PlanView, TheLargestAllocationIsNamed) {
  const char* twin = "layers=1,dim=64,heads=4,kv_heads=4,ffn=64,vocab=1024,tied=false";
  const PlanView apart = plan({{"set", twin}, {"wrap", "class:Embedding,lm_head"}, {"world", "64"}});
  EXPECT_EQ(apart.largest_allocation_bytes, 262'144);
  EXPECT_THAT(apart.largest_allocation, HasSubstr("unsharded parameters"));
}

TEST(PlanView, PrefetchedUnitsAreInTheMemory) {
  const auto unsharded = [](const char* forward, const char* backward) {
    return plan({kM, {"forward_prefetch", forward}, {"backward_prefetch", backward}})
        .category_peaks[static_cast<std::size_t>(fsdp::MemoryCategory::kUnsharded)];
  };
  const fsdp::Bytes root = 65'537'024, block = 4'196'352;
  EXPECT_EQ(unsharded("0", "none"), root + block);
  EXPECT_EQ(unsharded("1", "pre"), root + 2 * block);
  EXPECT_EQ(unsharded("3", "pre"), root + 4 * block);
}

TEST(PlanView, SgdKeepsNoState) {
  EXPECT_EQ(plan({{"optimizer", "sgd"}}).at_peak[static_cast<std::size_t>(fsdp::MemoryCategory::kOptimizer)], 0);
}

TEST(PlanView, AnyWorldAndDeviceCanBePlanned) {
  EXPECT_GT(plan({{"device", "virtual"}, {"world", "4096"}}).peak_bytes, 0);
  EXPECT_GT(plan({{"device", "cuda"}, {"param_dtype", "bf16"}, {"reduce_dtype", "bf16"}}).peak_bytes, 0);
  EXPECT_THROW(plan({{"world", "4"}, {"strategy", "hybrid_shard:3"}}), fsdp::ConfigError);
  EXPECT_THROW(plan({{"wrap", "class:Nope"}}), fsdp::ConfigError);
}

TEST(PlanView, TextAndJsonSayTheSame) {
  CaseSettings c;
  apply_setting(c, kM.first, kM.second);
  const PlanView v = make_plan_view(c);
  const auto j = nlohmann::json::parse(plan_json(c, v));
  EXPECT_EQ(j["units"], 9);
  EXPECT_EQ(j["parameters"], 24'776'960);
  EXPECT_EQ(j["largest_unit"], "root");
  EXPECT_EQ(j["largest_unit_bytes"], 65'537'024);
  EXPECT_EQ(j["memory"]["total_bytes"], v.peak_bytes);
  EXPECT_TRUE(j["memory"]["activations_bytes"].is_null());
  const std::string text = plan_text(c, v);
  for (const std::string& part : {std::string("model.layers.7"), std::to_string(v.peak_bytes),
                                  std::string("65537024 B"), std::string("activations              apart")}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

}  // namespace
}  // namespace harness::cli
