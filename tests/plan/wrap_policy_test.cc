#include "fsdp/plan/wrap_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"
#include "harness/workload/model_settings.h"
#include "tests/plan/small_tree.h"

namespace fsdp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The models S and M of the cases.
ModuleTree model_s(bool tied = false) {
  return harness::describe_model(harness::resolve_model(
      "llama", std::string("layers=4,dim=64,heads=4,kv_heads=4,ffn=256,vocab=1000,tied=") + (tied ? "true" : "false")));
}
ModuleTree model_m() {
  return harness::describe_model(
      harness::resolve_model("llama", "layers=8,dim=256,heads=8,kv_heads=8,ffn=1024,vocab=32000,tied=false"));
}

UnitPlan plan_of(const ModuleTree& tree, const std::string& wrap) { return make_unit_plan(tree, parse_wrap(wrap), {}); }

std::vector<std::string> names(const UnitPlan& plan) {
  std::vector<std::string> n;
  for (const UnitSpec& u : plan.units) n.push_back(u.name);
  return n;
}

std::string error_of(const ModuleTree& tree, const std::string& wrap) {
  try {
    plan_of(tree, wrap);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

// Every parameter is in exactly one unit, and the counts add up.
void expect_complete(const ModuleTree& tree, const UnitPlan& plan) {
  std::vector<int> seen(tree.parameters.size(), 0);
  Count total = 0;
  for (const UnitSpec& u : plan.units) {
    EXPECT_FALSE(u.parameters.empty()) << u.name;
    Count n = 0;
    for (ParameterId p : u.parameters) ++seen[p], n += tree.parameters[p].numel();
    EXPECT_EQ(n, u.numel) << u.name;
    total += n;
  }
  EXPECT_EQ(total, tree.numel());
  EXPECT_THAT(seen, testing::Each(1));
  EXPECT_EQ(plan.decisions.size(), tree.modules.size());
}

TEST(WrapPolicy, RootIsOneUnitWithoutComplaint) {
  const UnitPlan plan = plan_of(model_s(), "root");
  EXPECT_THAT(names(plan), ElementsAre("root"));
  EXPECT_TRUE(plan.units[0].is_root);
  EXPECT_EQ(plan.units[0].numel, 390720);
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(WrapPolicy, BlockMakesEachBlockAUnitAndLeavesTheRestToTheRoot) {
  const ModuleTree tree = model_s();
  const UnitPlan plan = plan_of(tree, "block");
  expect_complete(tree, plan);
  EXPECT_THAT(names(plan), ElementsAre("root", "model.layers.0", "model.layers.1", "model.layers.2", "model.layers.3"));
  EXPECT_EQ(plan.units[0].numel, 128064);
  for (int i = 1; i <= 4; ++i) EXPECT_EQ(plan.units[i].numel, 65664);
  EXPECT_THAT(plan.units[0].parameters, ElementsAre(0, 37, 38));
  EXPECT_THAT(plan.units[1].parameters, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(WrapPolicy, BlocksKGroupsNeighboursAndTheLastMayBeShorter) {
  const ModuleTree tree = model_s();
  const UnitPlan plan = plan_of(tree, "blocks:3");
  expect_complete(tree, plan);
  EXPECT_THAT(names(plan), ElementsAre("root", "model.layers.[0-2]", "model.layers.3"));
  EXPECT_THAT(plan.units[1].modules,
              ElementsAre(tree.find("model.layers.0"), tree.find("model.layers.1"), tree.find("model.layers.2")));
  EXPECT_EQ(plan.units[1].numel, 3 * 65664);
  EXPECT_THAT(names(plan_of(tree, "blocks:99")), ElementsAre("root", "model.layers.[0-3]"));
}

TEST(WrapPolicy, BlocksKDoesNotReachAcrossLists) {
  ModuleTree tree = SmallTree::of("t5{enc{block:ModuleList{0(1),1(1),2(1)}},dec{block:ModuleList{0(2),1(2)}}}");
  for (ModuleInfo& m : tree.modules) m.is_block = m.path.find("block.") != std::string::npos;
  EXPECT_THAT(names(plan_of(tree, "blocks:2")), ElementsAre("enc.block.[0-1]", "enc.block.2", "dec.block.[0-1]"));
}

TEST(WrapPolicy, SublayerTakesEachNormWithWhatFollows) {
  const ModuleTree tree = model_s();
  const UnitPlan plan = plan_of(tree, "sublayer");
  expect_complete(tree, plan);
  ASSERT_EQ(plan.units.size(), 9u);
  EXPECT_EQ(plan.units[1].name, "model.layers.0.[input_layernorm+self_attn]");
  EXPECT_EQ(plan.units[2].name, "model.layers.0.[post_attention_layernorm+mlp]");
  EXPECT_EQ(plan.units[1].numel, 64 + 4 * 64 * 64);
  EXPECT_EQ(plan.units[2].numel, 64 + 3 * 64 * 256);
  EXPECT_THAT(plan.units[1].parameters, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(plan.units[0].numel, 128064);
}

TEST(WrapPolicy, SublayerLeavesWhatComesBeforeTheFirstStartToTheRoot) {
  ModuleTree tree = SmallTree::of("m{0(7){pre(1),n1(2),a(3),n2(4),f(5)}}");
  tree.modules[1].is_block = true;
  tree.modules[tree.find("0.n1")].is_sublayer_start = tree.modules[tree.find("0.n2")].is_sublayer_start = true;
  const UnitPlan plan = plan_of(tree, "sublayer");
  EXPECT_THAT(names(plan), ElementsAre("root", "0.[n1+a]", "0.[n2+f]"));
  EXPECT_EQ(plan.units[0].numel, 8);
}

TEST(WrapPolicy, WithoutBlocksTheWordsSayWhatToDo) {
  const ModuleTree tree = SmallTree::of("mlp{a(1),b(2)}");
  EXPECT_THAT(error_of(tree, "block"), AllOf(HasSubstr("no repeated blocks"), HasSubstr("size:MIN_PARAMS")));
  EXPECT_THAT(error_of(tree, "sublayer"), HasSubstr("no blocks"));
}

TEST(WrapPolicy, ClassMatchesTypesExactlyAndNests) {
  const ModuleTree tree = model_s();
  const UnitPlan plan = plan_of(tree, "class:LlamaDecoderLayer,LlamaMLP");
  expect_complete(tree, plan);
  ASSERT_EQ(plan.units.size(), 9u);
  EXPECT_EQ(plan.units[1].name, "model.layers.0");
  EXPECT_EQ(plan.units[1].numel, 65664 - 3 * 64 * 256);
  EXPECT_EQ(plan.units[2].name, "model.layers.0.mlp");
}

TEST(WrapPolicy, AUnitWhoseParametersAllLieInChildUnitsIsLeftOut) {
  const ModuleTree tree = model_s();
  const UnitPlan plan = plan_of(tree, "class:LlamaMLP,Linear");
  expect_complete(tree, plan);
  EXPECT_EQ(plan.units.size(), 1u + 4 * 7 + 1);
  const ModuleDecision& mlp = plan.decisions[tree.find("model.layers.0.mlp")];
  EXPECT_FALSE(mlp.starts_unit);
  EXPECT_THAT(mlp.reason, HasSubstr("left out"));
}

TEST(WrapPolicy, ClassTakesPathsAndWildcardsThatStopAtDots) {
  const ModuleTree tree = model_s();
  EXPECT_THAT(names(plan_of(tree, "class:model.layers.0.self_attn.q_proj,lm_head")),
              ElementsAre("root", "model.layers.0.self_attn.q_proj", "lm_head"));
  EXPECT_EQ(names(plan_of(tree, "class:model.layers.*")), names(plan_of(tree, "block")));
  EXPECT_THAT(names(plan_of(tree, "class:*.embed_tokens")), ElementsAre("root", "model.embed_tokens"));
}

TEST(WrapPolicy, PathsMatchAsWritten) {
  EXPECT_TRUE(path_matches("a.*.c", "a.b.c"));
  EXPECT_FALSE(path_matches("a.*", "a.b.c"));
  EXPECT_TRUE(path_matches("*_proj", "q_proj"));
  EXPECT_TRUE(path_matches("a*b*c", "axxbyybzc"));
  EXPECT_FALSE(path_matches("a*b*c", "axxbyyb"));
  EXPECT_FALSE(path_matches("*a", "b.a"));
  EXPECT_TRUE(path_matches("*.*a", "b.xa"));
  EXPECT_FALSE(path_matches("abc", "ab"));
  EXPECT_FALSE(path_matches("*", "a.b"));
}

TEST(WrapPolicy, NoClassMatchedIsAnErrorThatNamesTheNearest) {
  EXPECT_EQ(error_of(model_m(), "class:llamadecoderlayer")
                .find("[wrap] no module has the type or path "
                      "'llamadecoderlayer'; nearest: LlamaDecoderLayer"),
            0u);
  EXPECT_THAT(error_of(model_m(), "class:model.layer.0"), HasSubstr("nearest: model.layers.0"));
}

TEST(WrapPolicy, OneOfSeveralClassesAbsentIsANote) {
  const ModuleTree tree = model_m();
  const UnitPlan plan = plan_of(tree, "class:LlamaDecoderLayer,VisionLayer");
  EXPECT_EQ(plan.units.size(), 9u);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_THAT(plan.notes[0], AllOf(HasSubstr("'VisionLayer'"), HasSubstr("the other names are used")));
}

TEST(WrapPolicy, AListOfModulesHasNoForwardAndIsRefused) {
  EXPECT_THAT(error_of(model_s(), "class:ModuleList"), HasSubstr("name its children, model.layers.*"));
  EXPECT_THAT(error_of(model_s(), "class:model.layers"), HasSubstr("has no forward"));
}

TEST(WrapPolicy, TheRootsOwnTypeIsFoundButMakesNoSecondUnit) {
  const UnitPlan plan = plan_of(model_s(), "class:LlamaForCausalLM");
  EXPECT_THAT(names(plan), ElementsAre("root"));
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("one unit holds 100 %")));
}

TEST(WrapPolicy, ASizeAboveTheModelIsOneUnitAndSaysItsBuffers) {  // case C02
  const UnitPlan plan = plan_of(model_m(), "size:100000000");
  ASSERT_EQ(plan.units.size(), 1u);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_THAT(plan.notes[0], AllOf(HasSubstr("one unit holds 100 %"), HasSubstr("all-gather buffer 99107840 bytes"),
                                   HasSubstr("reduce-scatter buffer 99107840 bytes"), HasSubstr("is 4196352 bytes")));
}

TEST(WrapPolicy, SizeCountsElementsWhateverTheDtype) {
  UnitOptions bf16;
  bf16.param_dtype = Dtype::kBFloat16;
  const ModuleTree tree = model_m();
  EXPECT_EQ(names(make_unit_plan(tree, WrapSize{1049088}, bf16)), names(make_unit_plan(tree, WrapSize{1049088}, {})));
  EXPECT_EQ(make_unit_plan(tree, WrapSize{1049088}, {}).units.size(), 11u);  // root (norm), table, 8 blocks, head
}

TEST(WrapPolicy, TiedWeightsInTwoUnitsAreMergedAndSaid) {  // case C05
  const ModuleTree tree = model_s(true);
  for (const char* wrap : {"class:Embedding", "size:50000"}) {
    const UnitPlan plan = plan_of(tree, wrap);
    expect_complete(tree, plan);
    EXPECT_EQ(tree.numel(), 326720);
    EXPECT_TRUE(plan.units[0].is_root);
    EXPECT_EQ(plan.units[0].parameters.front(), 0);
    EXPECT_THAT(plan.notes.front(), AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("lm_head.weight"))) << wrap;
  }
  EXPECT_EQ(plan_of(tree, "class:Embedding").units.size(), 1u);
  EXPECT_EQ(plan_of(tree, "size:50000").units.size(), 5u);
}

TEST(WrapPolicy, APartlyFrozenUnitOfTheFlatLayoutIsSaid) {  // trap T41
  ModuleTree tree = SmallTree::of("root{a{w(60),x(40)},b{w(10),x(20)}}");
  tree.parameters[0].trainable = false;                                 // a.w
  tree.parameters[2].trainable = tree.parameters[3].trainable = false;  // all of b
  UnitPlan plan = make_unit_plan(tree, WrapClass{{"a", "b"}}, {});
  EXPECT_THAT(plan.notes,
              ElementsAre("unit a holds frozen and trainable parameters: in the flat layout its gradient is "
                          "reduced whole, zeros for 60 of 100 elements; wrap them apart, or use layout "
                          "per_parameter"));
  plan = make_unit_plan(tree, WrapClass{{"a", "b"}}, {.layout = Layout::kPerParameter});
  EXPECT_THAT(plan.notes, IsEmpty()) << "frozen parameters are left out of the reduction";
}

TEST(WrapPolicy, TiedWeightsInsideOneUnitNeedNoWords) {  // case C05
  const ModuleTree tree = model_s(true);
  EXPECT_THAT(plan_of(tree, "block").notes, IsEmpty());
  WrapPlan policy;
  policy.lines.push_back({{"model.norm", "model.embed_tokens", "lm_head"}, {}, true, 0});
  policy.lines.push_back({{"model.layers.*"}, {}, false, 0});
  const UnitPlan plan = make_unit_plan(tree, policy, {});
  expect_complete(tree, plan);
  EXPECT_THAT(plan.notes, IsEmpty());
  EXPECT_EQ(plan.units.size(), 5u);
  EXPECT_EQ(plan.units[0].name, "[model.embed_tokens+model.norm+lm_head]");
  EXPECT_FALSE(plan.units[0].is_root);
  EXPECT_EQ(plan.units[0].numel, 64064);
}

TEST(WrapPolicy, ATiedParameterGoesToTheLowestUnitAroundAllItsOwners) {
  ModuleTree tree = SmallTree::of("root(1){p(2){a:T(3),b:T(4)},q(5)}");
  tree.share_parameter(tree.find("p.b"), "tied", tree.modules[tree.find("p.a")].parameters[0]);
  const UnitPlan plan = plan_of(tree, "class:T,p,q");
  expect_complete(tree, plan);
  EXPECT_THAT(names(plan), ElementsAre("root", "p", "p.b", "q"));
  EXPECT_EQ(plan.units[1].numel, 5);
  EXPECT_THAT(plan.notes, ElementsAre(AllOf(HasSubstr("in unit p;"), HasSubstr("unit p.a is left out"))));
}

TEST(WrapPolicy, ParametersKeepPreOrderInsideAUnit) {
  const UnitPlan plan = plan_of(SmallTree::of("root(1){a(2){b(3)},c(4)}"), "root");
  EXPECT_THAT(plan.units[0].parameters, ElementsAre(0, 1, 2, 3));
}

TEST(ParseWrap, EveryFormOfTheGrammar) {
  EXPECT_TRUE(std::holds_alternative<WrapRoot>(parse_wrap("root")));
  EXPECT_EQ(std::get<WrapBlocks>(parse_wrap("block")).per_unit, 1);
  EXPECT_EQ(std::get<WrapBlocks>(parse_wrap("blocks:4")).per_unit, 4);
  EXPECT_TRUE(std::holds_alternative<WrapSublayer>(parse_wrap("sublayer")));
  EXPECT_EQ(std::get<WrapSize>(parse_wrap("size:100000000")).min_params, 100000000);
  EXPECT_THAT(std::get<WrapClass>(parse_wrap("class:A, b.*")).names, ElementsAre("A", "b.*"));
}

class ParseWrapRefuses : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(ParseWrapRefuses, WithWhatIsRight) {
  try {
    parse_wrap(GetParam().first);
    FAIL() << "no error";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("[wrap]"), HasSubstr(GetParam().second)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Texts, ParseWrapRefuses,
    testing::Values(std::pair{"", "allowed: root, block"}, std::pair{"blok", "nearest: block"},
                    std::pair{"block:2", "nearest: blocks"}, std::pair{"blocks", "for example blocks:2"},
                    std::pair{"blocks:0", "at least 1"}, std::pair{"blocks:x", "at least 1"},
                    std::pair{"size:0", "elements, not bytes"}, std::pair{"size:-5", "at least 1"},
                    std::pair{"size:100MB", "elements, not bytes"}, std::pair{"size:1e8", "integer"},
                    std::pair{"class:", "names no module type"}, std::pair{"class: ,", "names no module type"},
                    std::pair{"plan:", "names no file"}, std::pair{"plan:/nowhere/units.yaml", "/nowhere/units.yaml"},
                    std::pair{"Root", "nearest: root"}));

}  // namespace
}  // namespace fsdp
