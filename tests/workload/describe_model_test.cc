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

struct SmallModel {
  const char* model;
  const char* set;
  Count parameters;
};
void PrintTo(const SmallModel& m, std::ostream* to) { *to << m.model << ' ' << m.set; }
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
                    SmallModel{"gpt-neox", "", 4 * (12 * 128 * 128 + 13 * 128) + 2 * 512 * 128 + 2 * 128},
                    SmallModel{"mlp", "layers=3,dim=10,classes=7", 3 * (2 * 10 * 40 + 50) + 10 * 7 + 7},
                    SmallModel{"t5", "layers=1,decoder_layers=3,dim=10,heads=2,head_dim=4,ffn=9,vocab=5",
                               4 * 80 + 2 * 90 + 20 + 3 * (8 * 80 + 2 * 90 + 30) + 5 * 10 + 2 * 32 * 2 + 2 * 10},
                    SmallModel{"qwen2", "layers=1,dim=64,heads=4,kv_heads=2,ffn=96,vocab=10",
                               2 * 64 * 64 + 2 * 64 * 32 + 64 + 32 + 32 + 3 * 64 * 96 + 2 * 64 + 2 * 10 * 64 + 64}));

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
  for (const char* model : {"llama", "mistral", "qwen2", "qwen3", "gpt-neox", "gpt2", "embedding-classifier"}) {
    const ModuleTree t = describe_model(resolve_model(model, ""));
    int blocks = 0;
    for (const fsdp::ModuleInfo& block : t.modules) {
      if (!block.is_block) continue;
      ++blocks;
      std::vector<bool> starts;
      for (ModuleId child : block.children) starts.push_back(t.modules[child].is_sublayer_start);
      EXPECT_THAT(starts, ElementsAre(true, false, true, false)) << model;
    }
    EXPECT_EQ(blocks, resolve_model(model, "").layers) << model;
  }
}

TEST(DescribeT5, SublayersAreTheLayersOfABlock) {
  const ModuleTree t = describe_model(resolve_model("t5", "layers=1,decoder_layers=1"));
  std::vector<std::string> starts;
  for (const fsdp::ModuleInfo& m : t.modules)
    if (m.is_sublayer_start) starts.push_back(m.path + " " + m.type);
  EXPECT_THAT(starts,
              ElementsAre("encoder.block.0.layer.0 T5LayerSelfAttention", "encoder.block.0.layer.1 T5LayerFF",
                          "decoder.block.0.layer.0 T5LayerSelfAttention",
                          "decoder.block.0.layer.1 T5LayerCrossAttention", "decoder.block.0.layer.2 T5LayerFF"));
}

TEST(DescribeT5, OneTableServesBothStacksAndTheTiedHead) {
  const ModuleTree t = describe_model(resolve_model("t5", ""));
  EXPECT_EQ(t.parameters[0].name, "shared.weight");
  EXPECT_THAT(t.parameters[0].aliases,
              ElementsAre("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"));
}

TEST(DescribeModel, FrozenParametersAreThoseOfThePatterns) {
  const auto frozen = [](const std::string& model, const std::string& set) {
    std::vector<std::string> names;
    for (const auto& p : describe_model(resolve_model(model, set)).parameters)
      if (!p.trainable) names.push_back(p.name);
    return names;
  };
  EXPECT_THAT(frozen("llama", "layers=2,frozen=*.1.*norm.weight+model.embed*"),
              ElementsAre("model.embed_tokens.weight", "model.layers.1.input_layernorm.weight",
                          "model.layers.1.post_attention_layernorm.weight"));
  EXPECT_THAT(frozen("t5", "frozen=lm_head.weight"), ElementsAre("shared.weight"));
  EXPECT_TRUE(frozen("llama", "").empty());
  EXPECT_THROW(frozen("llama", "frozen=*"), fsdp::ConfigError);
  EXPECT_THROW(frozen("llama", "frozen=embed_tokens"), fsdp::ConfigError);
}

TEST(DescribeModel, AnUnknownFamilyIsRefused) {
  ModelSettings m;
  m.family = "rnn";
  EXPECT_THROW(describe_model(m), fsdp::ConfigError);
}

}  // namespace
}  // namespace harness
