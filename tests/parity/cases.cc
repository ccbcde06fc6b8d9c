#include "tests/parity/cases.h"

#include <iostream>
#include <string>

#include "harness/trial/case_units.h"
#include "harness/trial/rank_world.h"
#include "tests/parity/chain.h"

namespace harness {

ParityCase::ParityCase(const nlohmann::json& document) : chain(document.value("chain", std::vector<int>{})) {
  for (const auto& [name, value] : document.at("settings").items())
    apply_setting(settings, name, value.get<std::string>());
  validate(settings);
}

fsdp::ModuleTree ParityCase::tree() const {
  const ModelSettings m = model_of(settings);
  return chain.empty() ? describe_model(m) : describe_chain(m);
}

fsdp::UnitPlan ParityCase::plan() const { return fsdp::make_unit_plan(tree(), settings.wrap.policy, settings.unit); }

TrainerSettings ParityCase::trainer_settings(const fsdp::UnitPlan& plan) const {
  TrainerSettings t = trainer_settings_of(settings, plan);
  if (!chain.empty()) t.make_model = [m = t.model, order = chain] { return make_chain(m, order); };
  return t;
}

void answer_lines(const std::function<nlohmann::json(const nlohmann::json&)>& answer) {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json out;
    try {
      out = answer(nlohmann::json::parse(line));
    } catch (const std::exception& e) {
      out = {{"error", e.what()}};
    }
    std::cout << out.dump() << std::endl;
  }
}

}  // namespace harness
