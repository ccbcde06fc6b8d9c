// What PyTorch's FSDP cannot do as asked is refused with the setting's name and what would be right.
#include "harness/sweep/runtime_limits.h"

#include <gmock/gmock.h>

#include "fsdp/core/errors.h"
#include "fsdp/plan/wrap_policy.h"

namespace harness {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string said(const SettingTexts& texts) {
  CaseSettings c;
  for (const auto& [name, text] : texts) apply_setting(c, name, text);
  try {
    validate_for_plan(c);
    check_runtime_units(c, fsdp::make_unit_plan(describe_model(model_of(c)), c.wrap.policy, c.unit));
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(RuntimeLimits, WhatEachCanDoPasses) {
  for (const char* runtime : {"shardscope", "fsdp2", "fsdp1"}) {
    for (const char* wrap : {"root", "block", "class:Linear"})
      EXPECT_EQ(said({{"runtime", runtime}, {"wrap", wrap}}), "");
    EXPECT_EQ(said({{"runtime", runtime}, {"strategy", "shard_grad_op"}, {"accumulate", "3"}, {"clip", "1"}}), "");
    EXPECT_EQ(said({{"runtime", runtime}, {"checkpoint", "block"}, {"param_dtype", "bf16"}}), "");
  }
  for (const char* wrap : {"sublayer", "blocks:2"}) EXPECT_EQ(said({{"runtime", "fsdp2"}, {"wrap", wrap}}), "");
  EXPECT_EQ(
      said({{"runtime", "fsdp2"}, {"world", "4"}, {"strategy", "hybrid_shard:2"}, {"backward_prefetch", "pre:2"}}), "");
  EXPECT_EQ(said({{"runtime", "fsdp1"}, {"strategy", "no_shard"}, {"backward_prefetch", "post"}}), "");
}

struct Refused {
  const char *runtime, *setting, *value, *why;
};
void PrintTo(const Refused& r, std::ostream* out) { *out << r.setting << " " << r.value; }
class RefusedByPytorch : public testing::TestWithParam<Refused> {};

TEST_P(RefusedByPytorch, WithItsReasonAndAWayOut) {
  const Refused& r = GetParam();
  const std::string text = said({{"runtime", r.runtime}, {r.setting, r.value}});
  EXPECT_THAT(text, AllOf(StartsWith("["), HasSubstr(r.why))) << r.setting;
  EXPECT_THAT(text, testing::AnyOf(HasSubstr("use "), HasSubstr("leave it out"), HasSubstr("it is"))) << r.setting;
  EXPECT_EQ(said({{r.setting, r.value}}), "") << "this program's runtime takes it";
}

INSTANTIATE_TEST_SUITE_P(Settings, RefusedByPytorch,
                         testing::Values(Refused{"fsdp2", "device", "virtual", "virtual world"},
                                         Refused{"fsdp2", "collectives", "local", "Gloo"},
                                         Refused{"fsdp1", "wire", "50us,10GB/s", "emulated"},
                                         Refused{"fsdp2", "memory_budget", "400MiB", "no budget"},
                                         Refused{"fsdp2", "reduce_scatter_slots", "3", "one reduction"},
                                         Refused{"fsdp2", "strategy", "no_shard", "fully_shard shards"},
                                         Refused{"fsdp2", "backward_prefetch", "none", "always"},
                                         Refused{"fsdp2", "backward_prefetch", "post", "always"},
                                         Refused{"fsdp2", "max_inflight", "3", "no limit"},
                                         Refused{"fsdp1", "layout", "per_parameter", "flat"},
                                         Refused{"fsdp1", "forward_prefetch", "2", "one unit ahead"},
                                         Refused{"fsdp1", "backward_prefetch", "pre:2", "one unit ahead"},
                                         Refused{"fsdp1", "reshard_after_forward", "false", "shard_grad_op"},
                                         Refused{"fsdp1", "output_dtype", "bf16", "none"},
                                         Refused{"fsdp1", "max_inflight", "3", "limiter"},
                                         Refused{"fsdp1", "wrap", "sublayer", "one module a unit"},
                                         Refused{"fsdp1", "wrap", "blocks:2", "one module a unit"}),
                         [](const testing::TestParamInfo<Refused>& info) {
                           return std::string(info.param.runtime) + "_" + info.param.setting + "_" +
                                  std::to_string(info.index);
                         });

TEST(RuntimeLimits, ACaseForPytorchLeavesOutWhatThatHasNoCounterpartFor) {
  CaseSettings c;
  for (const auto& [name, text] : SettingTexts{{"wire", "50us,10GB/s"}, {"max_inflight", "3"}, {"wrap", "root"}})
    apply_setting(c, name, text);
  std::vector<std::string> changed;
  const CaseSettings there = case_under(Runtime::kFsdp2, c, changed);
  EXPECT_THAT(changed, testing::ElementsAre("wire 50us,10GB/s", "max_inflight 3"));
  EXPECT_EQ(there.wrap.text, "root");
  EXPECT_NO_THROW(validate_for_plan(there));
  changed.clear();
  case_under(Runtime::kFsdp1, c, changed);
  EXPECT_THAT(changed, testing::ElementsAre("wire 50us,10GB/s"));  // FSDP1 has a limiter
}

}  // namespace
}  // namespace harness
