// One case after the other, with ranks as threads of this process: losses and norms of every step, the collectives of
// the last one as they were issued, and the parameters that the steps have made. What parity_matrix.py holds against
// PyTorch.
//
//   parity_driver < CASES     one JSON document a line, one answer a line:
//                             {"settings": {...}, "save": "DIRECTORY", "epsilon": AdamW's, "chain": [0, 0, 1]}
//                             "chain": the blocks of chain.h, in this order, instead of the model
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "fsdp/plan/wrap_policy.h"
#include "harness/trial/case_units.h"
#include "harness/trial/rank_progress.h"
#include "harness/trial/rank_world.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"
#include "tests/parity/chain.h"

namespace harness {
namespace {

using Json = nlohmann::json;

// Passes every call on and writes down those of units: the norm of clipping is the optimizer's.
class WrittenDown final : public fsdp::Collectives {
 public:
  explicit WrittenDown(fsdp::Collectives& inner) : inner_(inner) {}
  Json take() { return std::exchange(calls_, Json::array()); }

  int rank() const override { return inner_.rank(); }
  int world() const override { return inner_.world(); }
  int group_size(fsdp::Communicator c) const override { return inner_.group_size(c); }
  void enqueue(fsdp::Lane lane, const fsdp::CollectiveCall& call) override {
    if (call.unit != fsdp::kNoUnit) {
      const int ranks = inner_.group_size(call.communicator);
      calls_.push_back({name_of(call.kind), fsdp::full_bytes(call, ranks), name_of(call.in_dtype), ranks, call.unit});
    }
    inner_.enqueue(lane, call);
  }
  std::vector<std::uint64_t> exchange(std::uint64_t value) override { return inner_.exchange(value); }
  void* allocate(fsdp::Bytes n) override { return inner_.allocate(n); }
  void release(void* p) noexcept override { inner_.release(p); }

 private:
  fsdp::Collectives& inner_;
  Json calls_ = Json::array();
};

CaseSettings settings_of(const Json& given) {
  CaseSettings c;
  for (const auto& [name, value] : given.items())
    apply_setting(c, name, value.is_string() ? value.get<std::string>() : value.dump());
  validate(c);
  return c;
}

Json means_of(const std::vector<std::vector<StepResult>>& ranks) {
  Json out = {{"losses", Json::array()}, {"norms", Json::array()}};
  for (std::size_t step = 0; step < ranks[0].size(); ++step) {
    double loss = 0, square = 0;
    for (const auto& steps : ranks) {
      loss += steps[step].loss;
      square += steps[step].gradient_square_sum;
    }
    out["losses"].push_back(loss / static_cast<double>(ranks.size()));
    out["norms"].push_back(std::sqrt(square));
  }
  return out;
}

// `make`: RankWorld, collectives, meter -> what has step() and save().
template <class Make>
Json train(const CaseSettings& c, const fsdp::ModuleTree& tree, const fsdp::UnitPlan& plan,
           const std::string& directory, const Make& make) {
  std::vector<std::vector<StepResult>> results(static_cast<std::size_t>(c.world));
  Json collectives;
  fsdp::run_ranks(c.world, fsdp::groups_of(plan, c.world), [&](fsdp::RankWorld& w) {
    fsdp::MemoryMeter meter;
    WrittenDown calls(w.collectives);
    auto trainer = make(w, calls, meter);
    for (int step = 0; step < c.steps; ++step) {
      calls.take();
      results[static_cast<std::size_t>(w.rank)].push_back(trainer->step());
    }
    if (w.rank == 0) collectives = calls.take();
    if (!directory.empty()) trainer->save(directory);
  });
  Json out = means_of(results);
  out["collectives"] = collectives;
  for (const fsdp::UnitSpec& unit : plan.units) out["units"].push_back({unit.name, unit.parameters.size()});
  for (const auto& p : tree.parameters) out["parameters"].push_back(p.name);
  return out;
}

Json answer_to(const Json& document) {
  const CaseSettings c = settings_of(document.at("settings"));
  const auto order = document.value("chain", std::vector<int>{});
  const fsdp::UnitOptions unit = unit_options_of(c);
  const fsdp::ModuleTree tree = order.empty() ? describe_model(model_of(c)) : describe_chain(model_of(c));
  const fsdp::UnitPlan plan = fsdp::make_unit_plan(tree, fsdp::parse_wrap(c.wrap, unit), unit);
  TrainerSettings t = trainer_settings_of(c, plan);
  t.adamw_epsilon = document.value("epsilon", t.adamw_epsilon);
  const std::string save = document.value("save", "");
  if (order.empty())
    return train(c, tree, plan, save, [&](fsdp::RankWorld& w, auto& calls, auto& meter) {
      return std::make_unique<Trainer>(t, plan, w.device, calls, meter);
    });
  return train(c, tree, plan, save, [&](fsdp::RankWorld& w, auto& calls, auto& meter) {
    return std::make_unique<ChainTrainer>(t, order, plan, w.device, calls, meter);
  });
}

}  // namespace
}  // namespace harness

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      answer = harness::answer_to(nlohmann::json::parse(line));
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
