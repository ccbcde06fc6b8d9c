// Every preset against the public counts of its model, to the last parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/workload/model_settings.h"
#include "tests/testing/test_data.h"

namespace harness {
namespace {

using fsdp::Count;
using Row = std::map<std::string, std::string>;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

std::vector<Row> facts() {
  std::ifstream in(testing_support::test_data() + "/published/model_facts.csv");
  std::string line;
  std::getline(in, line);
  const auto names = cells_of(line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    const auto cells = cells_of(line);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) row[names[i]] = cells[i];
  }
  return rows;
}

std::int64_t number(const Row& row, const std::string& key) { return std::stoll(row.at(key)); }

// MPT has no preset: its counts are those of GPT-2's form, by its dimensions.
ModelSettings model_of(const Row& row) {
  const std::string& name = row.at("preset");
  if (name.rfind("mpt-", 0) != 0) return resolve_model(name, "");
  return resolve_model("gpt2", "layers=" + row.at("layers") + ",dim=" + row.at("dim") + ",heads=" + row.at("heads") +
                                   ",ffn=" + row.at("ffn") + ",vocab=" + row.at("vocab_rows") +
                                   ",positions=" + row.at("positions"));
}

TEST(PublishedModels, CountsOfTheTableAreEqualToTheLastParameter) {
  int models = 0;
  for (const Row& row : facts()) {
    if (row.at("family") == "moe-llama") continue;  // no experts here
    SCOPED_TRACE(row.at("preset"));
    const ModelSettings m = model_of(row);
    const fsdp::ModuleTree tree = describe_model(m);
    EXPECT_EQ(tree.numel(), number(row, "params_total"));
    if (row.count("published_count") != 0) {
      EXPECT_EQ(tree.numel(), number(row, "published_count"));
    }
    EXPECT_EQ(m.head_size(), number(row, "head_dim"));
    Count smallest = tree.numel();  // a T5 stack's first block also has the relative bias; the others are params_block
    for (std::size_t i = 0; i < tree.modules.size(); ++i)
      if (tree.modules[i].is_block) smallest = std::min(smallest, tree.subtree_numel(static_cast<fsdp::ModuleId>(i)));
    EXPECT_EQ(smallest, number(row, "params_block"));
    ++models;
  }
  EXPECT_EQ(models, 33);
}

TEST(PublishedModels, CountsOfTheModelCardsAreEqualToTheLastParameter) {
  const std::map<std::string, Count> cards = {
      {"pythia-70m", 70426624},     {"pythia-160m", 162322944},   {"pythia-410m", 405334016},
      {"pythia-1b", 1011781632},    {"pythia-1.4b", 1414647808},  {"pythia-2.8b", 2775208960},
      {"pythia-6.9b", 6857302016},  {"pythia-12b", 11846072320},  {"mistral-7b", 7241732096},
      {"qwen2.5-0.5b", 494032768},  {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-7b", 7615616512},
      {"qwen2.5-72b", 72706203648}, {"qwen3-0.6b", 596049920},    {"qwen3-8b", 8190735360},
  };
  for (const auto& [name, parameters] : cards)
    EXPECT_EQ(describe_model(resolve_model(name, "")).numel(), parameters) << name;
}

// Adam with fp32 masters: 4 bytes of weight and 8 of moments for each parameter, over all ranks, and the padding that
// is reported.
TEST(PublishedModels, StateIsTwelveBytesAParameter) {
  for (const Row& row : facts()) {
    if (row.at("family") == "moe-llama") continue;
    const fsdp::ModuleTree tree = describe_model(model_of(row));
    for (const auto layout : {fsdp::Layout::kFlat, fsdp::Layout::kPerParameter}) {
      const fsdp::UnitOptions o{.layout = layout};
      const auto plan = fsdp::make_unit_plan(tree, fsdp::parse_wrap("block"), o);
      for (const int world : {1, 8, 512}) {
        fsdp::Bytes state = 0;
        Count padding = 0;
        for (const auto& unit : plan.units) {
          const auto bytes = fsdp::unit_bytes(unit, tree, world, 8);
          state += world * (bytes.parameters + bytes.optimizer);
          padding += bytes.padding;
        }
        EXPECT_EQ(state - 12 * padding, 12 * number(row, "params_total")) << row.at("preset") << " over " << world;
      }
    }
  }
}

}  // namespace
}  // namespace harness
