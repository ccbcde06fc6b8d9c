// One case after the other, with ranks as threads of this process: losses and norms of every step, the collectives of
// the last one as they were issued, and the parameters that the steps have made. What parity_matrix.py holds against
// PyTorch.
//
//   parity_driver < CASES     one JSON document a line, one answer a line:
//                             cases.h, with "save": "DIRECTORY" and "epsilon": AdamW's
#include <cmath>
#include <string>
#include <utility>

#include "tests/module/ranks.h"
#include "tests/parity/cases.h"

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

Json answer_to(const Json& document) {
  const ParityCase c(document);
  const fsdp::UnitPlan plan = c.plan();
  TrainerSettings t = c.trainer_settings(plan);
  t.adamw_epsilon = document.value("epsilon", t.adamw_epsilon);
  const std::string directory = document.value("save", "");
  std::vector<std::vector<StepResult>> results(static_cast<std::size_t>(c.settings.world));
  Json collectives;
  fsdp::run_ranks(c.settings.world, fsdp::groups_of(plan, c.settings.world), [&](fsdp::RankWorld& w) {
    fsdp::MemoryMeter meter;
    WrittenDown calls(w.collectives);
    Trainer trainer(t, plan, w.device, calls, meter);
    for (int step = 0; step < c.settings.steps; ++step) {
      calls.take();
      results[static_cast<std::size_t>(w.rank)].push_back(trainer.step());
    }
    if (w.rank == 0) collectives = calls.take();
    if (!directory.empty()) trainer.save(directory);
  });
  Json out = means_of(results);
  out["collectives"] = collectives;
  for (const fsdp::UnitSpec& unit : plan.units) out["units"].push_back({unit.name, unit.parameters.size()});
  for (const auto& p : c.tree().parameters) out["parameters"].push_back(p.name);
  return out;
}

}  // namespace
}  // namespace harness

int main() { harness::answer_lines(harness::answer_to); }
