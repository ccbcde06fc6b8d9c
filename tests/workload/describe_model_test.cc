#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"
#include "harness/workload/model_settings.h"

namespace harness {
namespace {

using fsdp::Count;
using fsdp::InitRule;
using fsdp::ModuleId;
using fsdp::ModuleTree;
using testing::ElementsAre;

struct PublishedModel {
  const char* name;
  Count parameters, block;
};
class PublishedCounts : public testing::TestWithParam<PublishedModel> {};

TEST_P(PublishedCounts, AreEqualToTheLastParameter) {
  const ModuleTree tree = describe_model(resolve_model(GetParam().name, ""));
  EXPECT_EQ(tree.numel(), GetParam().parameters);
  for (std::size_t m = 0; m < tree.modules.size(); ++m) {
    if (!tree.modules[m].is_block) continue;
    EXPECT_EQ(tree.subtree_numel(static_cast<ModuleId>(m)), GetParam().block);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedCounts,
                         testing::Values(PublishedModel{"llama-2-7b", 6738415616, 202383360},
                                         PublishedModel{"llama-2-13b", 13015864320, 317204480},
                                         PublishedModel{"llama-2-70b", 68976648192, 855654400},
                                         PublishedModel{"llama-3-8b", 8030261248, 218112000},
                                         PublishedModel{"llama-3-70b", 70553706496, 855654400},
                                         PublishedModel{"llama-3.1-405b", 405853388800, 3187703808},
                                         PublishedModel{"llama-3.2-1b", 1235814400, 60821504},
                                         PublishedModel{"gpt-neox-20b", 20554567680, 453064704}));

struct SmallModel {
  const char* model;
  const char* set;
  Count parameters;
};
class SmallCounts : public testing::TestWithParam<SmallModel> {};

TEST_P(SmallCounts, AreTheClosedForm) {
  EXPECT_EQ(describe_model(resolve_model(GetParam().model, GetParam().set)).numel(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Models, SmallCounts,
    testing::Values(SmallModel{"llama", "layers=4,dim=64,heads=4,kv_heads=4,ffn=256,vocab=1000,tied=false", 390720},
                    SmallModel{"llama", "layers=4,dim=64,heads=4,kv_heads=4,ffn=256,vocab=1000,tied=true", 326720},
                    SmallModel{"llama", "layers=8,dim=256,heads=8,kv_heads=8,ffn=1024,vocab=32000,tied=false",
                               24776960},
                    SmallModel{"llama", "layers=2,dim=64,heads=2,kv_heads=2,ffn=96,vocab=128,tied=false", 86336},
                    SmallModel{"gpt-neox", "", 4 * (12 * 128 * 128 + 13 * 128) + 2 * 512 * 128 + 2 * 128}));

TEST(DescribeLlama, PathsTypesAndIndicesAreThoseUsersKnow) {
  const ModuleTree t = describe_model(resolve_model("llama", "layers=2,dim=64,heads=4,kv_heads=2,ffn=96,vocab=100"));
  EXPECT_EQ(t.modules[0].type, "LlamaForCausalLM");
  const auto type = [&](const char* path) { return t.modules.at(t.find(path)).type; };
  EXPECT_EQ(type("model"), "LlamaModel");
  EXPECT_EQ(type("model.embed_tokens"), "Embedding");
  EXPECT_EQ(type("model.layers"), "ModuleList");
  EXPECT_EQ(type("model.layers.1"), "LlamaDecoderLayer");
  EXPECT_EQ(type("model.layers.1.self_attn"), "LlamaAttention");
  EXPECT_EQ(type("model.layers.1.mlp"), "LlamaMLP");
  EXPECT_EQ(type("model.norm"), "LlamaRMSNorm");
  EXPECT_EQ(type("lm_head"), "Linear");

  std::vector<std::string> names;  // of block 1, which starts at 1 + 9
  for (int p = 10; p < 19; ++p) names.push_back(t.parameters[p].name.substr(std::string("model.layers.1.").size()));
  EXPECT_THAT(names,
              ElementsAre("input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                          "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                          "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"));
  EXPECT_EQ(t.parameters[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(t.parameters[19].name, "model.norm.weight");
  EXPECT_EQ(t.parameters[20].name, "lm_head.weight");
  EXPECT_THAT(t.parameters[0].shape, ElementsAre(100, 64));
  EXPECT_THAT(t.parameters[12].shape, ElementsAre(32, 64));  // grouped heads
  EXPECT_THAT(t.parameters[18].shape, ElementsAre(64, 96));
  EXPECT_EQ(t.parameters[10].init, InitRule::kOnes);
  EXPECT_EQ(t.parameters[11].init, InitRule::kUniform);
  for (std::size_t p = 0; p < t.parameters.size(); ++p) EXPECT_EQ(t.parameters[p].index, static_cast<int>(p));
}

TEST(DescribeLlama, TheTiedHeadSharesTheTableAndTakesNoIndex) {
  const ModuleTree t = describe_model(resolve_model("llama", "layers=2,tied=true"));
  EXPECT_EQ(t.parameters.size(), 20u);
  EXPECT_THAT(t.parameters[0].aliases, ElementsAre("lm_head.weight"));
  EXPECT_THAT(t.modules[t.find("lm_head")].parameters, ElementsAre(0));
  EXPECT_EQ(t.parameters.back().name, "model.norm.weight");
}

TEST(DescribeGptNeox, PathsTypesAndIndicesAreThoseUsersKnow) {
  const ModuleTree t = describe_model(resolve_model("gpt-neox", "layers=2"));
  EXPECT_EQ(t.modules[0].type, "GPTNeoXForCausalLM");
  const auto type = [&](const char* path) { return t.modules.at(t.find(path)).type; };
  EXPECT_EQ(type("gpt_neox"), "GPTNeoXModel");
  EXPECT_EQ(type("gpt_neox.layers.1"), "GPTNeoXLayer");
  EXPECT_EQ(type("gpt_neox.layers.1.attention"), "GPTNeoXAttention");
  EXPECT_EQ(type("gpt_neox.layers.1.mlp"), "GPTNeoXMLP");
  EXPECT_EQ(type("gpt_neox.final_layer_norm"), "LayerNorm");
  EXPECT_EQ(type("embed_out"), "Linear");
  ASSERT_EQ(t.parameters.size(), 1u + 2 * 12 + 2 + 1);
  EXPECT_EQ(t.parameters[13].name, "gpt_neox.layers.1.input_layernorm.weight");
  EXPECT_EQ(t.parameters[15].name, "gpt_neox.layers.1.attention.query_key_value.weight");
  EXPECT_THAT(t.parameters[15].shape, ElementsAre(384, 128));
  EXPECT_EQ(t.parameters[13].init, InitRule::kOnes);
  EXPECT_EQ(t.parameters[14].init, InitRule::kZeros);
  EXPECT_EQ(t.parameters[16].init, InitRule::kZeros);
  EXPECT_EQ(t.parameters.back().name, "embed_out.weight");
}

TEST(DescribeModel, EachBlockHasTwoSublayersThatCoverIt) {
  for (const char* model : {"llama", "gpt-neox"}) {
    const ModuleTree t = describe_model(resolve_model(model, ""));
    int blocks = 0;
    for (const fsdp::ModuleInfo& block : t.modules) {
      if (!block.is_block) continue;
      ++blocks;
      std::vector<bool> starts;
      for (ModuleId child : block.children) starts.push_back(t.modules[child].is_sublayer_start);
      EXPECT_THAT(starts, ElementsAre(true, false, true, false)) << model;
    }
    EXPECT_EQ(blocks, 4) << model;
  }
}

TEST(DescribeModel, AnUnknownFamilyIsRefused) {
  ModelSettings m;
  m.family = "rnn";
  EXPECT_THROW(describe_model(m), fsdp::ConfigError);
}

}  // namespace
}  // namespace harness
