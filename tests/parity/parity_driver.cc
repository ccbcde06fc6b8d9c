// One case after the other, with ranks as threads of this process: losses and norms of every step, the collectives of
// the last one as they were issued, and the parameters that the steps have made. What parity_matrix.py holds against
// PyTorch.
//
//   parity_driver < CASES     one JSON document a line: {"settings": {...}, "save": "DIRECTORY"}; one answer a line
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/trial/case_units.h"
#include "harness/trial/rank_progress.h"
#include "harness/trial/rank_world.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"

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

Json run(const CaseSettings& c, const std::string& directory) {
  const fsdp::UnitPlan plan = plan_of(c);
  std::vector<std::vector<double>> losses(static_cast<std::size_t>(c.world)), norms = losses;
  Json collectives;
  fsdp::run_ranks(c.world, fsdp::groups_of(plan, c.world), [&](fsdp::RankWorld& w) {
    fsdp::MemoryMeter meter;
    WrittenDown calls(w.collectives);
    Trainer trainer(trainer_settings_of(c, plan), plan, w.device, calls, meter);
    for (int step = 0; step < c.steps; ++step) {
      calls.take();
      const StepResult r = trainer.step();
      losses[static_cast<std::size_t>(w.rank)].push_back(r.loss);
      norms[static_cast<std::size_t>(w.rank)].push_back(r.gradient_square_sum);
    }
    if (w.rank == 0) collectives = calls.take();
    if (!directory.empty()) trainer.save(directory);
  });
  Json out = {{"collectives", collectives}, {"units", Json::array()}, {"parameters", Json::array()}};
  for (int step = 0; step < c.steps; ++step) {
    double loss = 0, square = 0;
    for (int rank = 0; rank < c.world; ++rank) {
      loss += losses[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
      square += norms[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
    }
    out["losses"].push_back(loss / c.world);
    out["norms"].push_back(std::sqrt(square));
  }
  for (const fsdp::UnitSpec& unit : plan.units) out["units"].push_back({unit.name, unit.parameters.size()});
  for (const auto& p : describe_model(model_of(c)).parameters) out["parameters"].push_back(p.name);
  return out;
}

}  // namespace
}  // namespace harness

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      const auto document = nlohmann::json::parse(line);
      answer = harness::run(harness::settings_of(document.at("settings")), document.value("save", ""));
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
