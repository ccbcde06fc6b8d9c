#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"
#include "fsdp/plan/unit_options.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/model_settings.h"

namespace fsdp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

ModuleTree model_m() {
  return harness::describe_model(
      harness::resolve_model("llama", "layers=8,dim=256,heads=8,kv_heads=8,ffn=1024,vocab=32000,tied=false"));
}

UnitPlan plan_of(const std::string& yaml, const UnitOptions& defaults = {}) {
  return make_unit_plan(model_m(), parse_wrap_plan(yaml, "p.yaml"), defaults);
}

std::string error_of(const std::string& yaml) {
  try {
    plan_of(yaml);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

TEST(WrapPlanFile, EachLineCarriesItsOwnOptions) {
  UnitOptions defaults;
  defaults.reduce_dtype = Dtype::kBFloat16;
  const UnitPlan plan = plan_of(R"(units:
  - match: "model.layers.*"
    strategy: full_shard
    param_dtype: bf16
  - match: "model.embed_tokens"
    strategy: no_shard
    param_dtype: fp32
    reduce_dtype: fp32
    reshard_after_forward: false
)",
                                defaults);
  ASSERT_EQ(plan.units.size(), 10u);
  EXPECT_THAT(plan.notes, IsEmpty());
  EXPECT_EQ(plan.units[0].name, "root");
  EXPECT_EQ(plan.units[0].options.reduce_dtype, Dtype::kBFloat16);
  EXPECT_EQ(plan.units[1].name, "model.embed_tokens");
  EXPECT_EQ(plan.units[1].options.strategy, Strategy::kNoShard);
  EXPECT_EQ(plan.units[1].options.reduce_dtype, Dtype::kFloat32);
  EXPECT_EQ(plan.units[1].options.reshard_after_forward, false);
  EXPECT_EQ(plan.units[2].options.param_dtype, Dtype::kBFloat16);
  EXPECT_EQ(plan.units[2].options.reduce_dtype, Dtype::kBFloat16);
}

TEST(WrapPlanFile, TableAndHeadOutOfTheRoot) {  // case C03: plan B has one unit more, and the head with its norm
  const UnitPlan a = plan_of("units: [{match: \"model.layers.*\"}]");
  EXPECT_EQ(a.units.size(), 9u);
  EXPECT_EQ(a.units[0].numel * 4, 65537024);
  EXPECT_EQ(a.units[1].numel * 4, 4196352);
  const UnitPlan b = plan_of(R"(units:
  - match: model.embed_tokens
  - match: model.layers.*
  - match: [model.norm, lm_head]
    reshard_after_forward: false
)");
  ASSERT_EQ(b.units.size(), 10u);
  EXPECT_EQ(b.units[0].name, "model.embed_tokens");
  EXPECT_FALSE(b.units[0].is_root);
  EXPECT_EQ(b.units[9].name, "[model.norm+lm_head]");
  EXPECT_EQ(b.units[9].numel, 8192256);
  EXPECT_FALSE(reshards_after_forward(b.units[9]));
  EXPECT_EQ((b.units[9].numel + b.units[8].numel) * 4, 36965376);
}

TEST(WrapPlanFile, StrategiesWithGroups) {
  const WrapPlan plan = parse_wrap_plan(R"(units:
  - {match: a, strategy: "hybrid_shard:4", reshard_after_forward: auto}
  - {match: b, strategy: "hybrid_shard_zero2:2", reshard_after_forward: 2}
  - {match: c, reshard_after_forward: 1}
)",
                                        "p.yaml");
  EXPECT_EQ(plan.lines[0].options.strategy, Strategy::kHybridShard);
  EXPECT_EQ(plan.lines[0].options.group, 4);
  EXPECT_EQ(plan.lines[1].options.strategy, Strategy::kHybridShardZero2);
  EXPECT_EQ(plan.lines[1].options.reshard_group, 2);
  EXPECT_EQ(plan.lines[1].options.reshard_after_forward, true);
  EXPECT_EQ(plan.lines[2].options.reshard_after_forward, false);
  EXPECT_EQ(plan.lines[2].options.reshard_group, 1);
  EXPECT_EQ(plan.lines[2].line, 4);
}

TEST(WrapPlanFile, OutputTypesUnitByUnit) {
  const UnitPlan plan = plan_of(R"(units:
  - {match: root, output_dtype: fp32}
  - {match: "model.layers.*", output_dtype: bf16}
  - {match: "model.layers.0", output_dtype: auto}
)");
  EXPECT_EQ(plan.units[0].options.output_dtype, Dtype::kFloat32);
  EXPECT_EQ(plan.units[1].options.output_dtype, std::nullopt);
  EXPECT_EQ(plan.units[2].options.output_dtype, Dtype::kBFloat16);
}

TEST(WrapPlanFile, TheRootCanBeNamed) {
  const UnitPlan plan = plan_of("units: [{match: root, param_dtype: bf16}, {match: \"model.layers.*\"}]");
  EXPECT_TRUE(plan.units[0].is_root);
  EXPECT_EQ(plan.units[0].options.param_dtype, Dtype::kBFloat16);
  EXPECT_EQ(plan.units[1].options.param_dtype, Dtype::kFloat32);
}

TEST(WrapPlanFile, WhereLinesOverlapTheLastDecidesAndSaysSo) {
  const UnitPlan plan = plan_of(R"(units:
  - match: "model.layers.*"
  - match: "model.layers.7"
    strategy: no_shard
)");
  EXPECT_EQ(plan.units.back().options.strategy, Strategy::kNoShard);
  EXPECT_EQ(plan.units[7].options.strategy, Strategy::kFullShard);
  EXPECT_THAT(plan.notes, ElementsAre(AllOf(StartsWith("[p.yaml:3] model.layers.7"), HasSubstr("decides"))));
}

TEST(WrapPlanFile, NestedLinesMakeNestedUnits) {
  const UnitPlan plan =
      plan_of("units: [{match: \"model.layers.*\"}, {match: \"model.layers.*.mlp\", strategy: no_shard}]");
  ASSERT_EQ(plan.units.size(), 17u);
  EXPECT_EQ(plan.units[1].numel + plan.units[2].numel, 1049088);
  EXPECT_EQ(plan.units[2].name, "model.layers.0.mlp");
}

class WrapPlanFileRefuses : public testing::TestWithParam<std::pair<const char*, std::vector<const char*>>> {};

TEST_P(WrapPlanFileRefuses, NamingFileLineAndRemedy) {
  const std::string error = error_of(GetParam().first);
  for (const char* part : GetParam().second) EXPECT_THAT(error, HasSubstr(part));
}

using Row = std::pair<const char*, std::vector<const char*>>;
INSTANTIATE_TEST_SUITE_P(
    Files, WrapPlanFileRefuses,
    testing::Values(
        Row{"units:\n  - match: a\n    strtegy: x\n",
            {"[p.yaml:3]", "unknown key 'strtegy'", "nearest: strategy", "allowed: match"}},
        Row{"unit:\n  - match: a\n", {"[p.yaml:1]", "unknown key 'unit'", "nearest: units"}},
        Row{"units:\n  - match: a\n    strategy: zero3\n", {"[p.yaml:3]", "'zero3'", "full_shard, shard_grad_op"}},
        Row{"units:\n  - match: a\n    strategy: hybrid_shard\n", {"[p.yaml:3]", "hybrid_shard:GROUP"}},
        Row{"units:\n  - match: a\n    strategy: full_shard:2\n", {"[p.yaml:3]", "'full_shard:2'"}},
        Row{"units:\n  - match: a\n    param_dtype: fp16\n", {"[p.yaml:3]", "allowed: fp32, bf16"}},
        Row{"units:\n  - match: a\n    output_dtype: fp16\n", {"[p.yaml:3]", "allowed: auto, fp32, bf16"}},
        Row{"units:\n  - match: a\n    reshard_after_forward: maybe\n", {"[p.yaml:3]", "auto, true, false"}},
        Row{"units:\n  - match: a\n    match: b\n", {"[p.yaml:3]", "twice"}},
        Row{"units:\n  - strategy: no_shard\n", {"[p.yaml:2]", "no 'match'"}},
        Row{"units:\n  - match: \"model.layers.*\"\n  - match: \"model.embed\"\n",
            {"[p.yaml:3]", "'model.embed' names no module; nearest: model.embed_tokens"}},
        Row{"units:\n  - match: model.layers\n", {"[p.yaml:2]", "has no forward", "model.layers.*"}},
        Row{"units:\n  - match: *.mlp\n", {"[p.yaml:2]", "quotes"}},
        Row{"units:\n  - {match: [}\n", {"[p.yaml:2]", "not YAML"}},
        Row{"units: []\n", {"[p.yaml:1]", "at least one entry"}}, Row{"", {"[p.yaml", "'units'"}},
        Row{"- a\n", {"[p.yaml:1]", "'units'"}}, Row{"units:\n  - a\n", {"[p.yaml:2]", "a unit is a map"}},
        Row{"units:\n  - match: []\n", {"[p.yaml:2]", "'match'"}},
        Row{"units:\n  - match: {a: b}\n", {"[p.yaml:2]", "'match'"}},
        Row{"units:\n  - match: a\n    strategy: [no_shard]\n", {"[p.yaml:3]", "single"}}));

TEST(UnitOption, UnknownKeysListTheAllowed) {
  UnitOptions o;
  EXPECT_THROW(unit_option("matsh"), ConfigError);
  unit_option("strategy").parse(o, "shard_grad_op");
  EXPECT_EQ(o.strategy, Strategy::kShardGradOp);
  EXPECT_EQ(o.group, 0);
}

}  // namespace
}  // namespace fsdp
