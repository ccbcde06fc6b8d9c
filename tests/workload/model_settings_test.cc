#include "harness/workload/model_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

using testing::HasSubstr;

TEST(ResolveModel, PresetsStandAsPublished) {
  const ModelSettings m = resolve_model("llama-3-8b", "");
  EXPECT_EQ(m.family, "llama");
  EXPECT_EQ(m.layers, 32);
  EXPECT_EQ(m.kv_heads, 8);
  EXPECT_EQ(m.vocab, 128256);
  EXPECT_EQ(m.seq, 8192);
  EXPECT_DOUBLE_EQ(m.rope_theta, 500000.0);
  EXPECT_EQ(resolve_model("gpt-neox", "").family, "gpt-neox");
  EXPECT_TRUE(resolve_model("llama-3.2-1b", "").tied);
}

TEST(ResolveModel, EveryPresetIsValid) {
  for (const std::string& name : model_presets()) EXPECT_NO_THROW(resolve_model(name, "")) << name;
}

TEST(ResolveModel, OverridesReplaceDimensions) {
  const ModelSettings m = resolve_model("llama", "layers=8,dim=512,heads=8,kv_heads=2,ffn=1376,vocab=4096,tied=true");
  EXPECT_EQ(m.layers, 8);
  EXPECT_EQ(m.dim, 512);
  EXPECT_EQ(m.heads, 8);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_EQ(m.ffn, 1376);
  EXPECT_EQ(m.vocab, 4096);
  EXPECT_TRUE(m.tied);
}

TEST(ResolveModel, WhatFollowsAnotherDimensionGoesOnFollowingIt) {
  EXPECT_EQ(resolve_model("llama", "heads=8").kv_heads, 8);
  EXPECT_EQ(resolve_model("llama-3-8b", "heads=16").kv_heads, 8);
  EXPECT_EQ(resolve_model("gpt-neox", "dim=256").ffn, 1024);
  EXPECT_EQ(resolve_model("gpt-neox", "dim=256,ffn=300").ffn, 300);
  EXPECT_EQ(resolve_model("llama", "dim=256").ffn, 352);
  EXPECT_EQ(resolve_model("t5", "layers=7").decoders(), 7);
  EXPECT_EQ(resolve_model("t5", "heads=2").head_size(), 32);
}

struct BadModel {
  const char* model;
  const char* overrides;
  const char* says;
};
void PrintTo(const BadModel& m, std::ostream* to) { *to << m.model << ' ' << m.overrides; }
class ResolveModelRefuses : public testing::TestWithParam<BadModel> {};

TEST_P(ResolveModelRefuses, WithWhatIsRight) {
  try {
    resolve_model(GetParam().model, GetParam().overrides);
    FAIL() << "no error";
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr(GetParam().says));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, ResolveModelRefuses,
    testing::Values(
        BadModel{"lama", "", "nearest: llama"}, BadModel{"llama-3-8", "", "nearest: llama-3-8b"},
        BadModel{"./absent.json", "", "./absent.json does not exist"},
        BadModel{"absent/model", "", "absent/model does not exist"},
        BadModel{"x{layer=3}", "", "x has no 'layer'; nearest: layers"},
        BadModel{"x{family=rnn}", "", "no model family 'rnn'; families: llama, mistral"},
        BadModel{"llama", "layer=3", "no dimension 'layer' (nearest: layers); allowed for llama: layers, dim"},
        BadModel{"llama", "layers", "'layers' in \"layers\" is not NAME=VALUE"},
        BadModel{"llama", "layers=2,,dim=4", "'' in \"layers=2,,dim=4\" is not NAME=VALUE"},
        BadModel{"llama", "layers=x", "layers=x is not a whole number"},
        BadModel{"llama", "layers=2.5", "whole number"}, BadModel{"llama", "layers=", "is not NAME=VALUE"},
        BadModel{"llama", "layers=0", "from 1"}, BadModel{"llama", "vocab=-1", "from 1"},
        BadModel{"llama", "dim=99999999999999999999", "whole number"},
        BadModel{"llama", "dim=2,dim=4", "dim is given twice"}, BadModel{"llama", "tied=yes", "neither true nor false"},
        BadModel{"llama", "dim=130", "dim=130 is not a multiple of heads=4"},
        BadModel{"llama", "kv_heads=3", "heads=4 is not a multiple of kv_heads=3"},
        BadModel{"llama", "dim=12,heads=4", "rotary"}, BadModel{"gpt-neox", "kv_heads=2", "no grouped heads"},
        BadModel{"gpt2", "kv_heads=2", "gpt2 has no grouped heads"},
        BadModel{"gpt2", "rope_theta=3", "no dimension 'rope_theta'"},
        BadModel{"llama", "rope_theta=nan", "not a number above 0"}, BadModel{"mlp", "heads=2", "no dimension 'heads'"},
        BadModel{"t5", "relative_span=16", "does not pass the 16 near distances"}));

TEST(CheckSequence, LearnedPositionsHaveAnEnd) {
  EXPECT_NO_THROW(check_sequence(resolve_model("gpt2", ""), 1024));
  EXPECT_THROW(check_sequence(resolve_model("gpt2", ""), 1025), fsdp::ConfigError);
  EXPECT_NO_THROW(check_sequence(resolve_model("gpt2", "positions=2048"), 2048));
  EXPECT_NO_THROW(check_sequence(resolve_model("llama", ""), 1 << 20));
}

}  // namespace
}  // namespace harness
