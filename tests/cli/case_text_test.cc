#include "harness/cli/case_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace harness::cli {
namespace {

TEST(CaseJson, NumbersReadBackExactlyAndOthersAreNull) {
  CaseRecord r;
  r.losses = {4.852030263919617, 0.1, 1.0 / 3.0, std::numeric_limits<double>::quiet_NaN()};
  r.tokens_per_s = 12345.678901234567;
  r.environment = {{"cpu", "a \"name\" with \xff bytes"}};
  r.axes = {{"wrap", "block"}};
  const auto j = nlohmann::json::parse(case_json(r));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(j["losses"][i].get<double>(), r.losses[static_cast<std::size_t>(i)]);
  EXPECT_TRUE(j["losses"][3].is_null());
  EXPECT_EQ(j["tokens_per_s"].get<double>(), *r.tokens_per_s);
  EXPECT_EQ(j["wrap"], "block");
  EXPECT_TRUE(j["step_ns"].is_null());
  EXPECT_TRUE(j["compute_ns"].is_null());
  EXPECT_EQ(j["status"], "skipped");
}

TEST(CaseText, AModelOfAFileIsNamedInTheTableAndWholeInTheJson) {
  CaseRecord r;
  r.settings = {
      {"model", "mine{family=qwen2,layers=2}"}, {"world", "2"}, {"wrap", "block"}, {"strategy", "full_shard"}};
  EXPECT_THAT(case_text(r), testing::HasSubstr("model    mine, 2 ranks, wrap block, full_shard\n"));
  EXPECT_EQ(nlohmann::json::parse(case_json(r))["settings"]["model"], "mine{family=qwen2,layers=2}");
}

TEST(CaseText, ACaseWithoutNumbersShowsItsReason) {
  CaseRecord r;
  r.id = "llama-root-1";
  r.status = Status::kOom;
  r.reason = "rank 0 ran out of memory";
  EXPECT_THAT(case_text(r), testing::StartsWith("case     llama-root-1   oom: rank 0 ran out of memory\n"));
}

}  // namespace
}  // namespace harness::cli
