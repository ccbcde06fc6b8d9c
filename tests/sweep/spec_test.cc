#include "harness/sweep/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "fsdp/core/errors.h"
#include "harness/sweep/cuda_support.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const char* kExample = R"(name: example
base:                       # case settings
  model: llama
  set: {layers: 8, dim: 256}
  steps: 4
  wire: "200us,2GB/s"
  memory_budget: 400MiB
axes:
  wrap: [root, "blocks:4", "blocks:2", block, sublayer]
  backward_prefetch: [none, pre]
exclude:
  - {wrap: root, backward_prefetch: pre}
repeat: {min: 6, max: 30, relative_ci: 2%, time: 30s}
trace: one
timeout: 120s
)";

std::string error_of(const std::string& text) {
  try {
    expand(parse_spec(text, "s.yaml"));
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Spec, TheExampleOfTheContractReadsWhole) {
  const SweepSpec spec = parse_spec(kExample, "s.yaml");
  EXPECT_EQ(spec.name, "example");
  EXPECT_EQ(setting_text(spec.base, "set"), "layers=8,dim=256");
  EXPECT_EQ(spec.base.memory_budget, 400 << 20);
  ASSERT_EQ(spec.axes.size(), 2u);
  EXPECT_EQ(spec.axes[0].first, "wrap");
  EXPECT_THAT(spec.axes[0].second, ElementsAre("root", "blocks:4", "blocks:2", "block", "sublayer"));
  EXPECT_EQ(spec.repeat.min, 6);
  EXPECT_EQ(spec.repeat.relative_ci, 0.02);
  EXPECT_TRUE(spec.trace);
  EXPECT_EQ(spec.timeout, 120'000'000'000);
  EXPECT_EQ(spec.text, kExample);
}

TEST(Spec, CasesAreTheProductWithoutTheExcludedInTheSpecsOrder) {
  const auto cases = expand(parse_spec(kExample, "s.yaml"));
  ASSERT_EQ(cases.size(), 9u);
  EXPECT_EQ(axes_text(cases[0].axes), "wrap=root, backward_prefetch=none");
  EXPECT_EQ(axes_text(cases[1].axes), "wrap=blocks:4, backward_prefetch=none");
  EXPECT_EQ(axes_text(cases[8].axes), "wrap=sublayer, backward_prefetch=pre");
  std::set<std::string> ids;
  for (const SweepCase& c : cases) {
    EXPECT_EQ(c.id, case_id(c.settings));
    EXPECT_EQ(c.config_error, "");
    ids.insert(c.id);
  }
  EXPECT_EQ(ids.size(), 9u);
}

TEST(Spec, AnAxisOfModelFilesIsReadByTheirNames) {
  EXPECT_EQ(axes_text({{"model", "mine{family=qwen2,layers=2}"}, {"wrap", "block"}}), "model=mine, wrap=block");
}

TEST(Spec, WithoutAxesThereIsOneCase) {
  const auto cases = expand(parse_spec("base: {model: llama}\n", "s.yaml"));
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(axes_text(cases[0].axes), "base");
}

TEST(Spec, CasesWithTheSameSettingsCollapse) {
  EXPECT_EQ(
      expand(parse_spec("axes: {backward_prefetch: [pre, \"pre:2\"], max_inflight: [auto, \"1024MiB\"]}", "s.yaml"))
          .size(),
      4u);
  // a value that a second axis overrides back
  EXPECT_EQ(expand(parse_spec("base: {set: {layers: 2}}\naxes: {set: [\"layers=2\", \"dim=128,layers=2\"], seed: [0]}",
                              "s.yaml"))
                .size(),
            2u);
}

TEST(Spec, AnAxisOfDimensionsGoesOnTopOfTheBase) {
  const auto cases =
      expand(parse_spec("base: {set: {dim: 64}}\naxes: {set: [{layers: 2}, \"layers=4,dim=128\"]}", "s.yaml"));
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(setting_text(cases[0].settings, "set"), "layers=2,dim=64");
  EXPECT_EQ(cases[0].axes[0].second, "layers=2");
  EXPECT_EQ(setting_text(cases[1].settings, "set"), "layers=4,dim=128");
}

TEST(Spec, ExcludeTakesListsAndSetsOfDimensions) {
  EXPECT_EQ(expand(parse_spec("axes: {wrap: [root, block, sublayer], batch: [1, 2]}\nexclude:\n  - {wrap: [root, "
                              "sublayer], batch: 2}\n",
                              "s.yaml"))
                .size(),
            4u);
  EXPECT_EQ(
      expand(parse_spec(
                 "axes: {set: [{layers: 2}, {layers: 3}], batch: [1, 2]}\nexclude:\n  - {set: {layers: 3}, batch: 2}\n",
                 "s.yaml"))
          .size(),
      3u);
}

TEST(Spec, ACaseThatCannotBeSetIsARowAndNotAnErrorOfTheSpec) {
  const auto cases =
      expand(parse_spec("axes: {wrap: [block, \"class:llamadecoderlayer\"], strategy: [full_shard, "
                        "\"hybrid_shard:3\"], device: [cpu, cuda]}",
                        "s.yaml"));
  ASSERT_EQ(cases.size(), 8u);
  EXPECT_EQ(cases[0].config_error, "");
  EXPECT_EQ(cases[1].environment_error.empty(), cuda_runs_here());
  EXPECT_THAT(cases[2].config_error, HasSubstr("does not divide world 2"));
  EXPECT_THAT(cases[4].config_error, HasSubstr("LlamaDecoderLayer"));
}

TEST(Spec, TheHashKnowsWhatIsMeasuredAndNothingElse) {
  const SweepSpec spec = parse_spec(kExample, "s.yaml");
  std::string other = kExample;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = kExample;
    text.replace(text.find(from), from.size(), to);
    return parse_spec(text, "t.yaml");
  };
  EXPECT_EQ(with("name: example", "name: another   # comment").hash(), spec.hash());
  EXPECT_EQ(with("400MiB", "\"409600KiB\"").hash(), spec.hash());
  EXPECT_EQ(with("trace: one", "").hash(), spec.hash());
  for (const auto& [from, to, difference] : std::vector<std::array<std::string, 3>>{
           {"steps: 4", "steps: 8", "steps is 4 there and 8 here"},
           {"steps: 4", "", "steps is 4 there and 10 here"},
           {"[none, pre]", "[none, post]", "axis backward_prefetch is [none; pre] there and [none; post] here"},
           {"max: 30", "max: 31", "repeat max is 30 there and 31 here"},
           {"timeout: 120s", "timeout: 60s", "timeout is 120s there and 60s here"},
           {"  - {wrap: root, backward_prefetch: pre}", "  - {wrap: root}",
            "exclude is {backward_prefetch: pre, wrap: root} there and {wrap: root} here"}}) {
    EXPECT_NE(with(from, to).hash(), spec.hash()) << to;
    EXPECT_EQ(first_difference(spec, with(from, to)), difference);
  }
}

TEST(Spec, EveryErrorNamesFileAndLineAndWhatIsRight) {
  const std::vector<std::array<std::string, 3>> rows = {
      {"base: {model: llama}\nbsae: {}\n", "[s.yaml:2] ", "\"bsae\" is not a key of the spec; nearest: base"},
      {"base:\n  model: llama\n  forward_prefech: 1\n", "[s.yaml:3] ", "not a key of base; nearest: forward_prefetch"},
      {"base:\n  wrap: blok\n", "[s.yaml:2: wrap] ", "block"},
      {"base:\n  model: lama\n", "[s.yaml:2: model] ", "llama"},
      {"base:\n  memory_budget: -4MiB\n", "[s.yaml:2: memory_budget] ", "negative"},
      {"base:\n  world: [2]\n", "[s.yaml:2] ", "world is a list; give one value"},
      {"base:\n  world: two\n", "[s.yaml:2: world] ", "whole number"},
      {"base:\n  world:\n", "[s.yaml:", "world is empty; give one value"},
      {"base:\n  set: {layrs: 8}\n", "[s.yaml:2: ", "layers"},
      {"base:\n  set: {dim: 100, heads: 3}\n", "[s.yaml:2: ", "heads"},
      {"base:\n  set: {dim: 64, dim: 65}\n", "[s.yaml:2] ", "given twice"},
      {"base: 3\n", "[s.yaml:1] ", "base is a value; give a map"},
      {"axes:\n  wrap: block\n", "[s.yaml:2] ", "axis wrap is a value; give a list of values"},
      {"axes:\n  wrap: []\n", "[s.yaml:2] ", "axis wrap has no values"},
      {"axes:\n  wrap: [block,\n    blok]\n", "[s.yaml:3: wrap] ", "block"},
      {"axes:\n  wrap: [block, block]\n", "[s.yaml:2] ", "axis wrap holds block twice"},
      {"axes:\n  wrap: [block]\n  wrap: [root]\n", "[s.yaml:3] ", "\"wrap\" is given twice in axes"},
      {"axes:\n", "[s.yaml", "axes is empty"},
      {"axes: [wrap]\n", "[s.yaml:1] ", "axes is a list"},
      {"axes:\n  wrep: [block]\n", "[s.yaml:2] ", "nearest: wrap"},
      {"axes:\n  set: [{layers: 2}, {layrs: 2}]\n", "[s.yaml:2: ", "layers"},
      {"axes: {wrap: [root]}\nexclude: {wrap: root}\n", "[s.yaml:2] ", "exclude is a map; give a list of maps"},
      {"axes: {wrap: [root]}\nexclude: [{}]\n", "[s.yaml:2] ", "empty"},
      {"axes: {wrap: [root]}\nboundary:\n  setting: batch\n", "[s.yaml:3] ", "either from and to, or a list"},
      {"axes: {batch: [1]}\nboundary: {setting: batch, from: 1, to: 4}\n", "[s.yaml:2] ",
       "is an axis and the boundary"},
      {"boundary: {setting: batch, from: 1, to: 100000}\n", "[s.yaml:1] ", "give a step of 98"},
      {"boundary: {setting: batch, from: 4, to: 1}\n", "[s.yaml:1] ", "from 4 is above to 1"},
      {"boundary: {setting: batch, values: [1, 2, 2]}\n", "[s.yaml:1] ", "2 twice"},
      {"boundary: {setting: batch, from: 1, to: 8, start: 9}\n", "[s.yaml:1] ", "none of the values"},
      {"boundary: {setting: wrp, values: [root]}\n", "[s.yaml:1: wrp] ", "unknown setting"},
      {"repeat: {min: 3, max: 2}\n", "[s.yaml:1] ", "max 2 is below min 3"},
      {"repeat:\n  min: 0\n", "[s.yaml:2] ", "whole number from 1"},
      {"repeat:\n  relative_ci: 2\n", "[s.yaml:2] ", "2%"},
      {"repeat:\n  time: 30\n", "[s.yaml:2] ", "no unit"},
      {"trace: two\n", "[s.yaml:1] ", "use one or none"},
      {"trace: all\n", "[s.yaml:1] ", "not in this version"},
      {"timeout: 0s\n", "[s.yaml:1] ", "above 0"},
      {"name: [a]\n", "[s.yaml:1] ", "name is a list"},
      {"- wrap\n", "[s.yaml:1] ", "a sweep spec is a map"},
      {"just words\n", "[s.yaml:1] ", "a sweep spec is a map"},
      {"base: {model: llama\naxes: {wrap: [root}\n", "[s.yaml:", "not YAML"},
      {"base:\n\tmodel: llama\n", "[s.yaml:2] ", "not YAML"},
      {"base: &a [*a]\n", "[s.yaml:1] ", "base is a list"}};
  for (const auto& [text, place, what] : rows) {
    const std::string error = error_of(text);
    EXPECT_THAT(error, StartsWith(place)) << text;
    EXPECT_THAT(error, HasSubstr(what)) << text;
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 0) << text;
    EXPECT_EQ(std::count(error.begin(), error.end(), '['), std::count(error.begin(), error.end(), ']')) << error;
  }
}

TEST(Spec, WhatIsNotASpecFileIsNamed) {
  namespace fs = std::filesystem;
  const std::string dir = testing::TempDir() + "spec_files";
  fs::create_directories(dir);
  const auto error = [&](const std::string& name, const std::string& content) -> std::string {
    if (!content.empty()) std::ofstream(dir + "/" + name) << content;
    try {
      read_spec(dir + "/" + name);
    } catch (const fsdp::ConfigError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(error("missing.yaml", ""), HasSubstr("does not exist"));
  EXPECT_THAT(error(".", ""), HasSubstr("is a directory"));
  EXPECT_THAT(error("blank.yaml", " \n"), HasSubstr("is empty"));
  EXPECT_THAT(error("zero.yaml", std::string(100, '\0')), HasSubstr("is not text"));
  EXPECT_THAT(error("big.yaml", std::string(10 << 20, 'x')), HasSubstr("is larger than 1MiB"));
  EXPECT_THAT(error("deep.yaml", std::string(500'000, '[')), HasSubstr("deep.yaml"));
  EXPECT_THAT(error("binary.yaml", "\xff\xfe\x01\x02: ["), HasSubstr("binary.yaml"));
  fs::remove_all(dir);
}

TEST(Spec, FilesThatItNamesAreLookedForBesideIt) {
  namespace fs = std::filesystem;
  const std::string dir = testing::TempDir() + "spec_beside";
  fs::create_directories(dir);
  std::ofstream(dir + "/units.yaml") << "units:\n  - match: \"model.layers.*\"\n";
  std::ofstream(dir + "/s.yaml") << "axes: {wrap: [\"plan:units.yaml\", block]}\n";
  const SweepSpec spec = read_spec(dir + "/s.yaml");
  EXPECT_EQ(spec.axes[0].second[0], "plan:" + dir + "/units.yaml");
  const std::string hash = spec.hash();
  std::ofstream(dir + "/units.yaml") << "units:\n  - match: \"model.layers.0\"\n";
  EXPECT_NE(read_spec(dir + "/s.yaml").hash(), hash);  // a plan counts by content
  fs::remove_all(dir);
}

TEST(Spec, ARoundOfInterleavedCasesCanBeSetAndItsDefaultsChangeNothing) {
  const std::string axes = "axes: {batch: [1, 2]}\n";
  const SweepSpec plain = parse_spec(axes + "interleave: true\n", "s.yaml");
  const SweepSpec same = parse_spec(axes + "interleave: {repetitions: 20, time: 2s, pin: true}\n", "s.yaml");
  const SweepSpec other = parse_spec(axes + "interleave: {repetitions: 5, time: 7s, pin: false}\n", "s.yaml");
  EXPECT_EQ(plain.hash(), same.hash());
  EXPECT_NE(plain.hash(), other.hash());
  EXPECT_TRUE(other.interleave);
  EXPECT_EQ(other.round.repetitions, 5);
  EXPECT_EQ(other.round.time, 7'000'000'000);
  EXPECT_FALSE(other.round.pin);
  EXPECT_FALSE(parse_spec(axes + "interleave: false\n", "s.yaml").interleave);
  EXPECT_DOUBLE_EQ(plain.repeat.relative_ci, 0.0075) << "half of what counts as the same between pairs";
  EXPECT_DOUBLE_EQ(parse_spec("repeat: {relative_ci: 2%}\ninterleave: true\n", "s.yaml").repeat.relative_ci, 0.02);
  EXPECT_DOUBLE_EQ(parse_spec(axes + "interleave: false\n", "s.yaml").repeat.relative_ci, 0.02);
  EXPECT_THAT(error_of(axes + "interleave: {pin: maybe}\n"),
              HasSubstr("interleave pin is \"maybe\"; use true or false"));
  EXPECT_THAT(error_of(axes + "interleave: {repetition: 5}\n"), HasSubstr("nearest: repetitions"));
  EXPECT_THAT(error_of(axes + "interleave: often\n"), HasSubstr("interleave is \"often\"; use true or false"));
}

}  // namespace
}  // namespace harness
