// The models against Hugging Face transformers: paths, types and shapes of every module, and the losses of training.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"
#include "tests/testing/test_data.h"

namespace harness {
namespace {

using nlohmann::json;

class HuggingFace : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    reference_ = json::parse(std::ifstream(testing_support::test_data() + "/models/" + GetParam() + ".json"));
    model_ = resolve_model(reference_.at("model"), reference_.at("set"));
    model_.seq = reference_.at("seq");
  }
  json reference_;
  ModelSettings model_;
};

TEST_P(HuggingFace, HasTheSameModulesButThoseWithoutParameters) {
  std::map<std::string, std::string> types;
  for (const auto& m : reference_.at("modules")) types[m.at(0)] = m.at(1);
  std::set<std::string> ours;
  for (const fsdp::ModuleInfo& m : describe_model(model_).modules) {
    EXPECT_EQ(types[m.path], m.type) << m.path;
    ours.insert(m.path);
  }
  for (const auto& [path, type] : types) {
    if (ours.count(path) != 0) continue;
    for (const auto& p : reference_.at("parameters"))
      EXPECT_NE(p.at(0).get<std::string>().rfind(path + ".", 0), 0u) << path << " " << type;
  }
}

TEST_P(HuggingFace, HasTheSameParametersByAllTheirNames) {
  using Shapes = std::map<std::string, std::vector<fsdp::Count>>;
  Shapes theirs, ours;
  for (const auto& p : reference_.at("parameters")) theirs[p.at(0)] = p.at(1).get<std::vector<fsdp::Count>>();
  std::vector<std::string> order;
  for (const auto& p : describe_model(model_).parameters) {
    order.push_back(p.name);
    ours[p.name] = p.shape;
    for (const std::string& alias : p.aliases) ours[alias] = p.shape;
  }
  EXPECT_EQ(ours, theirs);
  EXPECT_EQ(order, reference_.at("parameter_order").get<std::vector<std::string>>());
}

TEST_P(HuggingFace, TrainsToTheSameLosses) {
  const auto losses = reference_.at("losses").get<std::vector<double>>();
  const auto norms = reference_.at("grad_norms").get<std::vector<double>>();
  for (const bool checkpoint : {false, true}) {
    fsdp::run_ranks(1, [&](fsdp::RankWorld& w) {
      fsdp::MemoryMeter meter;
      const auto plan = fsdp::make_unit_plan(describe_model(model_), fsdp::parse_wrap("block"), {});
      TrainerSettings settings;
      settings.model = model_;
      settings.batch = reference_.at("batch");
      settings.seed = reference_.at("seed");
      settings.checkpoint = checkpoint;
      Trainer trainer(settings, plan, w.device, w.collectives, meter);
      for (std::size_t s = 0; s < losses.size(); ++s) {
        const StepResult r = trainer.step();
        EXPECT_NEAR(r.loss, losses[s], 1e-5 * losses[s]) << "step " << s;
        EXPECT_NEAR(std::sqrt(r.gradient_square_sum), norms[s], 1e-4 * norms[s]) << "step " << s;
      }
      EXPECT_LT(losses.back(), losses.front());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HuggingFace,
                         testing::Values("llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt2", "t5", "t5_v1_1"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace harness
