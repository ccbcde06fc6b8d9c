#include "harness/workload/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/workload/model_fields.h"
#include "tests/testing/test_data.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<std::string> kFiles = {"llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt2", "t5", "t5_v1_1"};

json reference(const std::string& name) {
  return json::parse(std::ifstream(testing_support::test_data() + "/models/" + name + ".json"));
}
std::string fields_of(const ModelSettings& m) {
  std::string out;
  for (const ModelField& f : model_fields())
    if (std::string(f.name) != "seq" && std::string(f.name) != "ignored")
      out += std::string(f.name) + "=" + model_field_text(m, f) + "\n";
  return out;
}

// A file that goes with the test.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text, const std::string& folder = "tiny-model")
      : folder_(std::filesystem::path(testing::TempDir()) / ("config" + std::to_string(::getpid())) / folder) {
    std::filesystem::create_directories(folder_);
    std::ofstream(path()) << text;
  }
  ~ConfigFile() { std::filesystem::remove_all(folder_.parent_path()); }
  std::string path() const { return (folder_ / "config.json").string(); }

 private:
  std::filesystem::path folder_;
};

TEST(ModelConfig, FilesAsHuggingFaceSavesThemGiveTheModel) {
  for (const std::string& name : kFiles) {
    const json r = reference(name);
    const ModelSettings want = resolve_model(r.at("model"), r.at("set"));
    EXPECT_EQ(fields_of(model_from_config(r.at("config").dump(), name)), fields_of(want)) << name;
  }
}

TEST(ModelConfig, TheTextOfAFileSaysItsWholeContent) {
  for (const std::string& name : kFiles) {
    const json r = reference(name);
    const ConfigFile file(r.at("config").dump());
    const std::string text = model_text(file.path());
    EXPECT_EQ(model_name(text), "tiny-model");
    const ModelSettings from_file = resolve_model(file.path(), ""), from_text = resolve_model(text, "");
    EXPECT_EQ(fields_of(from_text), fields_of(from_file)) << text;
    EXPECT_EQ(from_text.seq, from_file.seq);
    EXPECT_EQ(from_text.ignored, from_file.ignored);
    EXPECT_EQ(model_text(text), text);
  }
}

TEST(ModelConfig, OverridesComeOnTop) {
  const ConfigFile file(reference("qwen3").at("config").dump());
  const ModelSettings m = resolve_model(file.path(), "layers=7,kv_heads=4");
  EXPECT_EQ(m.layers, 7);
  EXPECT_EQ(m.kv_heads, 4);
  EXPECT_EQ(m.head_dim, 12);
}

TEST(ModelConfig, ContentAloneMakesTheText) {
  json config = reference("llama").at("config");
  std::string first, second;
  {
    const ConfigFile file(config.dump());
    first = model_text(file.path());
  }
  config["num_hidden_layers"] = 3;
  const ConfigFile file(config.dump());
  second = model_text(file.path());
  EXPECT_NE(first, second);
  EXPECT_THAT(second, HasSubstr("layers=3"));
}

TEST(ModelConfig, WhatIsNotAppliedIsSaid) {
  json config = reference("mistral").at("config");
  config["sliding_window"] = 4096;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  const auto notes = model_notes(model_from_config(config.dump(), "c.json"));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("rope_scaling+sliding_window is not applied"));
  EXPECT_TRUE(model_notes(model_from_config(reference("llama").at("config").dump(), "c.json")).empty());
}

TEST(ModelConfig, OnlyTheDefaultRopeTypeIsApplied) {
  json config = reference("llama").at("config");
  for (const json& type : {json(7), json("yarn")}) {
    config["rope_parameters"] = {{"rope_type", type}};
    EXPECT_THAT(model_from_config(config.dump(), "c.json").ignored, HasSubstr("rope_parameters")) << type;
  }
  for (const json& type : {json(nullptr), json("default")}) {
    config["rope_parameters"] = {{"rope_type", type}};
    EXPECT_EQ(model_from_config(config.dump(), "c.json").ignored, "") << type;
  }
}

struct BadConfig {
  const char* file;    // whose configuration is changed
  const char* change;  // merged into it; null removes
  const char* says;
};
void PrintTo(const BadConfig& c, std::ostream* to) { *to << c.file << ' ' << c.change; }
class ModelConfigRefuses : public testing::TestWithParam<BadConfig> {};

TEST_P(ModelConfigRefuses, NamingFileAndKey) {
  json config = reference(GetParam().file).at("config");
  config.merge_patch(json::parse(GetParam().change));
  try {
    model_from_config(config.dump(), "models/x.json");
    FAIL() << "no error";
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("[model] models/x.json"));
    EXPECT_THAT(e.what(), HasSubstr(GetParam().says));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, ModelConfigRefuses,
    testing::Values(
        BadConfig{"llama", R"({"num_hidden_layers": null})", "key num_hidden_layers is missing"},
        BadConfig{"llama", R"({"hidden_size": "32"})", "key hidden_size (\"32\") is not a whole number"},
        BadConfig{"llama", R"({"hidden_size": 32.5})", "key hidden_size (32.5) is not a whole number"},
        BadConfig{"llama", R"({"vocab_size": -1})", "key vocab_size (-1) is not a whole number above 0"},
        BadConfig{"llama", R"({"vocab_size": 99999999999})", "vocab=99999999999 is more than"},
        BadConfig{"llama", R"({"hidden_size": 34, "head_dim": null})", "dim=34 is not a multiple of heads=4"},
        BadConfig{"llama", R"({"num_key_value_heads": 3})", "not a multiple of kv_heads=3"},
        BadConfig{"llama", R"({"rms_norm_eps": 0})", "key rms_norm_eps (0) is not a number above 0"},
        BadConfig{"llama", R"({"tie_word_embeddings": "no"})", "key tie_word_embeddings (\"no\") is neither"},
        BadConfig{"llama", R"({"hidden_act": "relu"})", "key hidden_act (\"relu\") is not supported; supported: silu"},
        BadConfig{"llama", R"({"attention_bias": true})", "key attention_bias (true) must be false"},
        BadConfig{"gpt2", R"({"activation_function": "swish"})", "supported: gelu_new, gelu_pytorch_tanh"},
        BadConfig{"gpt2", R"({"scale_attn_by_inverse_layer_idx": true})", "must be false"},
        BadConfig{"t5", R"({"feed_forward_proj": "gated-silu"})", "supported: relu, gated-gelu"},
        BadConfig{"t5", R"({"relative_attention_max_distance": 4})", "does not pass the 4 near distances"},
        BadConfig{"gpt_neox", R"({"rotary_pct": 0.01})", "rotary dimensions"},
        BadConfig{"llama", R"({"architectures": null})", "key architectures is missing"},
        BadConfig{"llama", R"({"architectures": []})", "key architectures is missing"},
        BadConfig{"llama", R"({"architectures": ["BertForMaskedLM"]})",
                  "names BertForMaskedLM, which is not supported; supported: LlamaForCausalLM, MistralForCausalLM, "
                  "Qwen2ForCausalLM, Qwen3ForCausalLM, GPTNeoXForCausalLM, GPT2LMHeadModel, "
                  "T5ForConditionalGeneration; any model of transformers can be exported: shardscope export --hf "
                  "models/x.json -o model.pt2"},
        BadConfig{"llama", R"({"mlp_bias": true})", "must be false; any model of transformers can be exported"}));

TEST(ModelConfig, WhatIsNoConfigurationIsRefused) {
  for (const auto& [text, says] : {std::pair{"{\"a\": ", "is not JSON"}, std::pair{"[1]", "is not a JSON object"}}) {
    const ConfigFile file(text);
    try {
      model_text(file.path());
      FAIL() << "no error";
    } catch (const fsdp::ConfigError& e) {
      EXPECT_THAT(e.what(), HasSubstr(file.path()));
      EXPECT_THAT(e.what(), HasSubstr(says));
    }
  }
  EXPECT_THROW(resolve_model("absent/config.json", ""), fsdp::ConfigError);
}

}  // namespace
}  // namespace harness
