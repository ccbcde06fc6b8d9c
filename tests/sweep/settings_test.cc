#include "harness/sweep/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "fsdp/core/errors.h"
#include "fsdp/core/memory_meter.h"
#include "harness/sweep/cuda_support.h"

namespace harness {
namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  } catch (const fsdp::EnvironmentError& e) {
    return std::string("environment ") + e.what();
  }
  return "accepted";
}

std::string apply_error(const std::string& name, const std::string& text) {
  CaseSettings c;
  return error_of([&] { apply_setting(c, name, text); });
}

CaseSettings with(const std::vector<std::pair<std::string, std::string>>& pairs) {
  CaseSettings c;
  for (const auto& [name, text] : pairs) apply_setting(c, name, text);
  return c;
}

TEST(Settings, DefaultsOfTheTableReadBackAsTheyStand) {
  for (const SettingRow& info : setting_table()) {
    CaseSettings c;
    apply_setting(c, info.name, info.standard);
    EXPECT_EQ(setting_text(c, info.name), info.standard) << info.name;
    EXPECT_EQ(all_settings(c), all_settings(CaseSettings{})) << info.name;
    EXPECT_FALSE(info.help.empty());
    EXPECT_FALSE(info.values.empty());
  }
}

TEST(Settings, EveryAllowedTextHasOneCanonicalForm) {
  const std::vector<std::array<std::string, 3>> rows = {{"memory_budget", "1024MiB", "1GiB"},
                                                        {"memory_budget", "1GiB", "1GiB"},
                                                        {"wire", "0.05ms, 80Gbit/s", "50us,10GB/s"},
                                                        {"step_timeout", "1500ms", "1500ms"},
                                                        {"backward_prefetch", "pre:1", "pre"},
                                                        {"backward_prefetch", "pre:3", "pre:3"},
                                                        {"max_inflight", "2", "2"},
                                                        {"max_inflight", "1024KiB", "1MiB"},
                                                        {"reshard_after_forward", "True", "true"},
                                                        {"set", "dim=64, layers=2", "layers=2,dim=64"},
                                                        {"set", "none", "none"},
                                                        {"seq", "model", "model"},
                                                        {"seq", "32", "32"},
                                                        {"clip", "1.0", "1"},
                                                        {"seed", "18446744073709551615", "18446744073709551615"},
                                                        {"strategy", "hybrid_shard:4", "hybrid_shard:4"},
                                                        {"wrap", "blocks:2", "blocks:2"},
                                                        {"wrap", "class:Linear,Embedding", "class:Linear,Embedding"},
                                                        {"ranks_per_node", "8", "8"},
                                                        {"arrival_skew", "17:90us, 3:0.25ms", "3:250us,17:90us"},
                                                        {"hardware", "h100-sxm", "h100-sxm"}};
  for (const auto& [name, text, canonical] : rows) {
    CaseSettings c;
    apply_setting(c, name, text);
    EXPECT_EQ(setting_text(c, name), canonical) << name << " " << text;
    CaseSettings again;
    apply_setting(again, name, canonical);
    EXPECT_EQ(setting_text(again, name), canonical) << name;
  }
}

TEST(Settings, BadTextNamesTheSettingAndWhatIsRight) {
  EXPECT_EQ(apply_error("forward_prefech", "1"),
            "[forward_prefech] unknown setting; nearest: forward_prefetch, backward_prefetch, hardware");
  EXPECT_EQ(apply_error("world", "0"), "[world] \"0\" is not allowed; use a whole number from 1 to 2147483647");
  EXPECT_EQ(apply_error("steps", "four"), "[steps] \"four\" is not allowed; use a whole number from 1 to 2147483647");
  EXPECT_EQ(apply_error("optimizer", "adam"), "[optimizer] \"adam\" is not allowed; use adamw, sgd (nearest: adamw)");
  EXPECT_EQ(apply_error("memory_budget", "-4MiB"),
            "[memory_budget] \"-4MiB\" is not a size: negative; write for instance 64MiB");
  EXPECT_EQ(apply_error("wire", "50us"),
            "[wire] \"50us\" is not allowed; use none, or LATENCY,BANDWIDTH, for instance 50us,10GB/s");
  EXPECT_THAT(apply_error("backward_prefetch", "pre:0"), HasSubstr("pre:K"));
  EXPECT_THAT(apply_error("max_inflight", "0"), HasSubstr("a number of units from 1"));
  EXPECT_THAT(apply_error("set", "layers"), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(apply_error("set", "layers=1,layers=2"), HasSubstr("given twice"));
  EXPECT_THAT(apply_error("strategy", "hybrid_shard"), HasSubstr("GROUP"));
  EXPECT_THAT(apply_error("clip", "inf"), HasSubstr("above 0"));
  EXPECT_THAT(apply_error("step_timeout", "0s"), HasSubstr("above 0"));
  EXPECT_THAT(apply_error("seed", "-1"), HasSubstr("from 0"));
  EXPECT_THAT(apply_error("model", "lama"), HasSubstr("llama"));
  EXPECT_THAT(apply_error("wrap", "blok"), HasSubstr("block"));
  EXPECT_THAT(apply_error("wrap", "blok"), testing::StartsWith("["));
}

TEST(Settings, TextsOfEverySettingReadBack) {
  const CaseSettings c = with({{"model", "gpt-neox"},
                               {"set", "layers=2,dim=64"},
                               {"world", "4"},
                               {"seq", "16"},
                               {"seed", "18446744073709551615"},
                               {"wire", "50us,10GB/s"},
                               {"memory_budget", "400MiB"},
                               {"wrap", "blocks:2"}});
  FileTexts none;
  EXPECT_EQ(all_settings(settings_from(all_settings(c), none)), all_settings(c));
  EXPECT_EQ(all_settings(settings_from({}, none)), all_settings(CaseSettings{}));
  EXPECT_THAT(error_of([&] { settings_from({{"wrold", "1"}}, none); }), HasSubstr("world"));
  EXPECT_THAT(to_json(c), HasSubstr("\"world\":4,"));
  EXPECT_THAT(to_json(c), HasSubstr("\"memory_budget\":\"400MiB\""));
}

TEST(Settings, CaseIdIsStableAndDependsOnEverySettingThatDiffers) {
  EXPECT_EQ(case_id(CaseSettings{}), case_id(with({{"wrap", "block"}, {"world", "2"}, {"step_timeout", "60000ms"}})));
  EXPECT_EQ(case_id(with({{"memory_budget", "1GiB"}})), case_id(with({{"memory_budget", "1024MiB"}})));
  std::set<std::string> ids = {case_id(CaseSettings{})};
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{{"world", "3"},
                                                                                   {"batch", "2"},
                                                                                   {"wrap", "root"},
                                                                                   {"wrap", "blocks:2"},
                                                                                   {"set", "layers=2"},
                                                                                   {"seed", "1"},
                                                                                   {"wire", "50us,10GB/s"},
                                                                                   {"wire", "50us,11GB/s"},
                                                                                   {"backward_prefetch", "none"},
                                                                                   {"model", "gpt-neox"}}) {
    EXPECT_TRUE(ids.insert(case_id(with({{name, text}}))).second) << name << " " << text;
  }
  // A fixed point: ids of stored results stay valid from version to version.
  EXPECT_THAT(case_id(with({{"wrap", "blocks:2"}, {"set", "layers=8,dim=256"}})),
              testing::MatchesRegex("llama-blocks2-[0-9a-f]{12}"));
}

TEST(Settings, WhatThisVersionDoesNotDoIsRefusedWithASentence) {
  const auto refusal = [](const std::string& name, const std::string& text) {
    const CaseSettings c = with({{name, text}});
    return error_of([&] { validate(c); });
  };
  EXPECT_EQ(error_of([] { validate(CaseSettings{}); }), "accepted");
  if (!built_with_cuda()) {
    EXPECT_EQ(refusal("device", "cuda"),
              "environment [device] this shardscope is built without CUDA; build it with the preset cuda, or use "
              "--device cpu, or --device virtual to predict a GPU node");
  }
  EXPECT_THAT(refusal("nccl_ctas", "4-16"), HasSubstr("[nccl_ctas] is for device cuda alone"));
  EXPECT_THAT(refusal("nccl_buffers", "registered"), HasSubstr("[nccl_buffers] is for device cuda alone"));
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"hardware", "h100-sxm"}, {"network", "x"}, {"ranks_per_node", "2"}}) {
    EXPECT_THAT(refusal(name, text),
                testing::AllOf(testing::StartsWith("[" + name + "]"), HasSubstr("for device virtual alone")))
        << name;
  }
  EXPECT_THAT(refusal("collectives", "nccl"), HasSubstr("needs device cuda"));
}

TEST(Settings, APredictionChecksItsHardwareAndNetwork) {
  const auto refusal = [](const std::vector<std::pair<std::string, std::string>>& settings) {
    return error_of([&] {
      CaseSettings c = with(settings);
      apply_setting(c, "device", "virtual");
      validate(c);
    });
  };
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({{"hardware", "h100-sxm"}, {"world", "64"}}), "accepted");
  EXPECT_THAT(refusal({{"hardware", "h100"}}), HasSubstr("nearest: h100-sxm"));
  EXPECT_THAT(refusal({{"hardware", "h100-sxm"}, {"network", "aws"}}), HasSubstr("nearest: aws-p"));
  EXPECT_THAT(refusal({{"hardware", "mi300x"}, {"world", "16"}}), HasSubstr("names no network"));
}

TEST(Settings, GroupsDivideTheRanksTheyAreCutFrom) {
  const auto refusal = [](const std::vector<std::pair<std::string, std::string>>& settings) {
    return error_of([&] { validate(with(settings)); });
  };
  EXPECT_EQ(refusal({{"world", "4"}, {"strategy", "hybrid_shard:2"}, {"reshard_after_forward", "2"}}), "accepted");
  EXPECT_THAT(refusal({{"world", "4"}, {"strategy", "hybrid_shard:3"}}), HasSubstr("use a group size that does"));
  EXPECT_THAT(refusal({{"world", "8"}, {"strategy", "hybrid_shard:2"}, {"reshard_after_forward", "4"}}),
              HasSubstr("do not divide the 2 ranks"));
}

TEST(Settings, PlanAllowsEveryDeviceAndDtype) {
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"device", "virtual"}, {"device", "cuda"}, {"param_dtype", "bf16"}}) {
    const CaseSettings c = with({{name, text}});
    EXPECT_EQ(error_of([&] { validate_for_plan(c); }), "accepted") << name;
  }
}

TEST(Settings, ValuesFollowTheTexts) {
  const CaseSettings c = with({{"wire", "50us,10GB/s"},
                               {"memory_budget", "1MiB"},
                               {"step_timeout", "5s"},
                               {"forward_prefetch", "2"},
                               {"backward_prefetch", "pre:3"},
                               {"strategy", "shard_grad_op"},
                               {"reshard_after_forward", "true"},
                               {"reduce_scatter_communicator", "own"}});
  EXPECT_EQ(c.wire, (fsdp::Wire{50'000, 10e9}));
  EXPECT_FALSE(CaseSettings{}.wire);
  EXPECT_EQ(c.memory_budget, 1 << 20);
  EXPECT_EQ(CaseSettings{}.memory_budget, fsdp::MemoryMeter::kNoBudget);
  EXPECT_EQ(c.step_timeout, 5'000'000'000);
  const fsdp::SchedulerOptions o = scheduler_options_of(c);
  EXPECT_EQ(o.forward_prefetch, 2);
  EXPECT_EQ(o.backward_depth, 3);
  EXPECT_TRUE(o.own_reduce_scatter_communicator);
  EXPECT_EQ(o.max_inflight.kind, fsdp::GateLimit::Kind::kUnits);
  EXPECT_EQ(o.max_inflight.value, 4);
  const fsdp::UnitOptions& u = c.unit;
  EXPECT_EQ(u.strategy, fsdp::Strategy::kShardGradOp);
  EXPECT_EQ(u.reshard_after_forward, std::optional<bool>(true));
  EXPECT_EQ(scheduler_options_of(with({{"max_inflight", "1GiB"}})).max_inflight.value, 1ll << 30);
  EXPECT_EQ(scheduler_options_of(with({{"max_inflight", "none"}})).max_inflight.kind, fsdp::GateLimit::Kind::kNone);
}

TEST(Settings, AGateBelowTheDepthAskedForWarns) {
  EXPECT_TRUE(setting_warnings(CaseSettings{}).empty());
  EXPECT_THAT(setting_warnings(with({{"max_inflight", "1"}})),
              testing::ElementsAre(HasSubstr("below the prefetch depth of 1")));
  EXPECT_TRUE(setting_warnings(with({{"max_inflight", "1"}, {"forward_prefetch", "0"}, {"backward_prefetch", "none"}}))
                  .empty());
}

}  // namespace
}  // namespace harness
