// `model: path/config.json`: read once, then its content travels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fsdp/core/errors.h"
#include "harness/sweep/settings.h"

namespace harness {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kTiny = R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 32,
  "num_attention_heads": 4, "intermediate_size": 88, "vocab_size": 96, "max_position_embeddings": 64})";

class ModelFile : public testing::Test {
 protected:
  void SetUp() override { folder_ = std::filesystem::path(testing::TempDir()) / ("models" + std::to_string(getpid())); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name / "config.json";
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  static CaseSettings with(const std::string& model) {
    CaseSettings c;
    apply_setting(c, "model", model);
    return c;
  }
  std::filesystem::path folder_;
};

TEST_F(ModelFile, IsReadOnceAndTravelsWhole) {
  CaseSettings c = with(write("tiny", kTiny));
  std::filesystem::remove_all(folder_);
  apply_setting(c, "set", "layers=3");
  FileTexts none;
  const CaseSettings there = settings_from(all_settings(c), none);
  EXPECT_NO_THROW(validate(there));
  EXPECT_EQ(model_of(there).layers, 3);
  EXPECT_EQ(model_of(there).ffn, 88);
  EXPECT_EQ(seq_of(there), 64);
}

TEST_F(ModelFile, CaseIdsFollowTheContent) {
  const std::string other = std::string(kTiny).replace(std::string(kTiny).find("88"), 2, "92");
  const std::string id = case_id(with(write("tiny", kTiny)));
  EXPECT_THAT(id, StartsWith("tiny-block-"));
  EXPECT_EQ(case_id(with(write("elsewhere/tiny", kTiny))), id);
  EXPECT_NE(case_id(with(write("tiny", other))), id);
}

TEST_F(ModelFile, ErrorsNameTheFile) {
  const std::string path = write("tiny", "{\"architectures\": [");
  try {
    with(path);
    FAIL() << "no error";
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), StartsWith("[model] " + path));
    EXPECT_THAT(e.what(), HasSubstr("is not JSON"));
  }
}

TEST_F(ModelFile, WhatIsNotAppliedIsAWarning) {
  EXPECT_THAT(setting_warnings(with("mistral-7b")), testing::Contains(HasSubstr("sliding_window is not applied")));
  EXPECT_THAT(setting_warnings(with("llama-3-8b")), testing::IsEmpty());
}

TEST_F(ModelFile, ASequenceBeyondTheLearnedPositionsIsRefused) {
  CaseSettings c = with("gpt2");
  apply_setting(c, "seq", "1025");
  EXPECT_THROW(validate(c), fsdp::ConfigError);
  apply_setting(c, "set", "positions=2048");
  EXPECT_NO_THROW(validate(c));
}

}  // namespace
}  // namespace harness
