// Files of tests/data/exported, and texts made from theirs.
#include "harness/workload/exported_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/describe.h"
#include "harness/workload/exported_archive.h"
#include "harness/workload/model_settings.h"
#include "tests/testing/test_data.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string exported(const std::string& name) { return testing_support::test_data() + "/exported/" + name + ".pt2"; }

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string write(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}
std::string error_of(const std::string& path) {
  try {
    exported_model(path, "");
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "";
}

ExportedTexts texts_of(const std::string& name) {
  const ExportedArchive a(exported(name));
  const auto text = [&](const char* member) { return a.has(member) ? a.text(member, 1 << 24) : std::string(); };
  return {text("models/model.json"), text("extra/shardscope.json"), text("data/weights/model_weights_config.json"),
          text("data/constants/model_constants_config.json")};
}
std::string error_of_texts(const ExportedTexts& t) {
  try {
    parse_exported(t, "a.pt2");
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "";
}
// The first operator of the graph with a change.
template <class F>
ExportedTexts changed(F change) {
  ExportedTexts t = texts_of("reached");
  json document = json::parse(t.model);
  change(document);
  t.model = document.dump();
  return t;
}
json& first_node(json& document) { return document["graph_module"]["graph"]["nodes"][0]; }

std::vector<std::string> unit_names(const fsdp::ModuleTree& tree, const std::string& wrap) {
  std::vector<std::string> names;
  for (const fsdp::UnitSpec& u : fsdp::make_unit_plan(tree, fsdp::parse_wrap(wrap, {}), {}).units)
    names.push_back(u.name);
  return names;
}

TEST(ExportedModel, HasTheTreeOfOurOwnLlama) {
  const auto graph = exported_model(exported("llama"), "");
  const ModelSettings own = resolve_model("llama", "layers=2,dim=32,heads=4,kv_heads=2,ffn=88,vocab=96,norm_eps=1e-06");
  const fsdp::ModuleTree tree = describe_model(own);
  ASSERT_EQ(graph->tree.parameters.size(), tree.parameters.size());
  for (std::size_t p = 0; p < tree.parameters.size(); ++p) {
    EXPECT_EQ(graph->tree.parameters[p].name, tree.parameters[p].name);
    EXPECT_EQ(graph->tree.parameters[p].shape, tree.parameters[p].shape);
    EXPECT_EQ(graph->tree.parameters[p].init, tree.parameters[p].init) << tree.parameters[p].name;
  }
  for (const char* wrap : {"root", "block", "blocks:2", "sublayer", "size:3000", "class:LlamaAttention,LlamaMLP"})
    EXPECT_EQ(unit_names(graph->tree, wrap), unit_names(tree, wrap)) << wrap;
  EXPECT_EQ(graph->batch, 2);
  EXPECT_EQ(graph->seq, 16);
  EXPECT_FALSE(graph->has_weights);
}

TEST(ExportedModel, CallsNestAndKnowWhatPassesThem) {
  const auto m = exported_model(exported("mixed"), "");
  int again = 0;
  for (const GraphCall& c : m->calls) {
    EXPECT_LT(c.begin, c.end);
    const std::string& path = m->tree.modules[static_cast<std::size_t>(c.module)].path;
    if (path == "again") ++again;
    if (path == "blocks.0" || path == "again") {
      EXPECT_EQ(c.inputs.size(), 1u) << path;
      EXPECT_EQ(c.outputs.size(), 1u) << path;
    }
    for (const std::int32_t inner : c.inside) {
      EXPECT_GE(m->calls[static_cast<std::size_t>(inner)].begin, c.begin);
      EXPECT_LE(m->calls[static_cast<std::size_t>(inner)].end, c.end);
    }
  }
  EXPECT_EQ(again, 2) << "the block that runs twice";
}

TEST(ExportedModel, KeepsSharedAndFrozenParameters) {
  const auto m = exported_model(exported("mixed"), "");
  const auto& parameters = m->tree.parameters;
  const auto named = [&](const std::string& name) {
    for (const fsdp::ParameterInfo& p : parameters)
      if (p.name == name) return p;
    ADD_FAILURE() << name;
    return fsdp::ParameterInfo();
  };
  EXPECT_THAT(named("table.weight").aliases, ElementsAre("head.weight"));
  EXPECT_FALSE(named("frozen.weight").trainable);
  EXPECT_TRUE(named("score.weight").trainable);
  EXPECT_EQ(m->tree.numel(), 4401) << "as PyTorch counts, shared ones once";
  EXPECT_FALSE(m->updates.empty()) << "running statistics of the batch norm";
}

TEST(ExportedModel, AModuleWhoseParameterIsReadElsewhereIsNoUnit) {
  const auto m = exported_model(exported("reached"), "");
  try {
    unit_names(m->tree, "class:inner");
    FAIL() << "was made a unit";
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("inner (Linear) cannot be a unit: it is never called, and inner.weight is read outside"));
  }
  EXPECT_THAT(unit_names(m->tree, "class:outer"), ElementsAre("root", "outer"));
}

TEST(ExportedModel, AModuleThatStopsAndGoesOnIsNoUnit) {
  ExportedTexts t = texts_of("reached");
  json document = json::parse(t.model);
  json& nodes = document["graph_module"]["graph"]["nodes"];
  const std::string stack = nodes[0]["metadata"]["nn_module_stack"];
  ASSERT_THAT(stack, HasSubstr("outer"));
  nodes.back()["metadata"]["nn_module_stack"] = stack;
  t.model = document.dump();
  const ExportedModel m = parse_exported(t, "a.pt2");
  try {
    unit_names(m.tree, "class:outer");
    FAIL() << "was made a unit";
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("outer (Linear) cannot be a unit: its operators are not one range of the graph"));
  }
}

TEST(ExportedModel, WithoutOurMemberModulesComeFromTheGraph) {
  ExportedTexts t = texts_of("mixed");
  t.about.clear();
  const ExportedModel m = parse_exported(t, "a.pt2");
  EXPECT_EQ(m.tree.numel(), 4401);
  EXPECT_THAT(unit_names(m.tree, "block"), ElementsAre("root", "blocks.0", "blocks.1"));
}

TEST(ExportedModel, CutOffOrOtherFilesAreOneSentence) {
  const std::string whole = bytes_of(exported("reached"));
  for (int percent = 0; percent < 100; percent += 5) {
    const std::string path = write("cut.pt2", whole.substr(0, whole.size() * static_cast<std::size_t>(percent) / 100));
    EXPECT_THAT(error_of(path), HasSubstr("is not a .pt2: it is no zip archive, or was cut off")) << percent;
  }
  EXPECT_THAT(error_of(write("text.pt2", "no zip at all")), HasSubstr("is not a .pt2"));
  EXPECT_THAT(error_of(testing::TempDir() + "absent.pt2"), HasSubstr("cannot be read"));
}

// Whatever stands in the file, the answer is a model or one sentence.
TEST(ExportedModel, FlippedBytesAreNoCrash) {
  const std::string whole = bytes_of(exported("reached"));
  for (std::size_t seed = 0; seed < 300; ++seed) {
    std::string bytes = whole;
    bytes[seed * 7919 % bytes.size()] = static_cast<char>(bytes[seed * 7919 % bytes.size()] ^ (1 << seed % 8));
    const std::string error = error_of(write("flipped.pt2", bytes));
    EXPECT_TRUE(error.empty() || error.starts_with("[model] ")) << seed << ": " << error;
  }
}

TEST(ExportedModel, AnotherSchemaIsNamed) {
  const ExportedTexts t = changed([](json& d) { d["schema_version"]["major"] = 9; });
  EXPECT_THAT(error_of_texts(t), HasSubstr("in schema 9, and schema 8 is read; export it with torch 2.11"));
}

TEST(ExportedModel, WhatIsNotRunIsNamed) {
  EXPECT_THAT(error_of_texts(changed([](json& d) { first_node(d)["target"] = "torch.ops.higher_order.cond"; })),
              HasSubstr("torch.ops.higher_order.cond is no operator"));
  EXPECT_THAT(error_of_texts(changed([](json& d) {
                first_node(d)["inputs"][0]["arg"] = {{"as_graph", json::object()}};
              })),
              HasSubstr("takes an argument of kind as_graph"));
  EXPECT_THAT(
      error_of_texts(changed([](json& d) { first_node(d)["inputs"][0]["arg"]["as_tensor"]["name"] = "nobody"; })),
      HasSubstr("the value nobody is read before it is made"));
  EXPECT_THAT(error_of_texts(changed([](json& d) { d.erase("graph_module"); })),
              HasSubstr("is not as torch.export writes it"));
  EXPECT_THAT(error_of_texts(changed([](json& d) { d["graph_module"]["graph"]["nodes"] = 3; })),
              HasSubstr("is not as torch.export writes it"));
}

TEST(ExportedModel, TravelsInATextWithItsFingerprint) {
  const std::string path = write("with space, {comma}.pt2", bytes_of(exported("mixed")));
  const std::string text = model_text(path);
  EXPECT_EQ(model_name(text), "with_space___comma_");
  const ModelSettings m = resolve_model(text, "");
  EXPECT_EQ(m.file, std::filesystem::path(path).lexically_normal().string());
  EXPECT_EQ(describe_model(m).numel(), 4401);
  std::ofstream(path, std::ios::binary) << bytes_of(exported("reached"));
  ModelSettings changed = m;
  changed.fingerprint = "0123456789abcdef";
  EXPECT_THROW(describe_model(changed), fsdp::ConfigError) << "another file under the name";
}

TEST(ExportedModel, OtherShapesThanItsOwnAreRefused) {
  const ModelSettings m = resolve_model(exported("llama"), "");
  EXPECT_NO_THROW(check_batch(m, 2));
  EXPECT_THROW(check_batch(m, 1), fsdp::ConfigError);
  EXPECT_NO_THROW(check_sequence(m, 16));
  EXPECT_THROW(check_sequence(m, 15), fsdp::ConfigError);
}

}  // namespace
}  // namespace harness
