// One case after the other on the host and predicted. What virtual_matrix.py asks.
//
//   virtual_driver < CASES    one JSON document a line, one answer a line:
//                             {"settings": {...}, "chain": [0, 0, 1]} -> {"peak": bytes, "differences": [...]}
//                             "chain": the blocks of chain.h, in this order, instead of the model
//                             {"refused": sentence}: both refuse the case, in the same words
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "fsdp/plan/wrap_policy.h"
#include "harness/trial/case_costs.h"
#include "harness/trial/case_units.h"
#include "harness/trial/rank_world.h"
#include "harness/trial/virtual_clock.h"
#include "tests/module/ranks.h"
#include "tests/parity/chain.h"
#include "tests/trial/both_worlds.h"

namespace harness {
namespace {

using Json = nlohmann::json;
using Order = std::vector<int>;

fsdp::UnitPlan chain_plan(const CaseSettings& c) {
  const fsdp::UnitOptions unit = unit_options_of(c);
  return fsdp::make_unit_plan(describe_chain(model_of(c)), fsdp::parse_wrap(c.wrap, unit), unit);
}

// Two steps, the second one traced, as a case of a family.
template <class Step>
RankResult trained(const Step& step, fsdp::Device& device, fsdp::MemoryMeter& meter) {
  step();
  device.set_recording(true);
  step();
  RankResult out;
  out.spans = device.take_spans();
  out.peak = meter.peak();
  out.category_peaks = meter.peak_by_category();
  out.peak_cause = meter.peak_cause();
  return out;
}

RankResult chain_on_host(const CaseSettings& c, const Order& order) {
  const fsdp::UnitPlan plan = chain_plan(c);
  const TrainerSettings t = trainer_settings_of(c, plan);
  RankResult first;
  fsdp::run_ranks(c.world, fsdp::groups_of(plan, c.world), [&](fsdp::RankWorld& w) {
    fsdp::MemoryMeter meter;
    ChainTrainer trainer(t, order, plan, w.device, w.collectives, meter);
    RankResult mine = trained([&] { trainer.step(); }, w.device, meter);
    if (w.rank == 0) first = std::move(mine);
  });
  return first;
}

RankResult chain_predicted(const CaseSettings& c, const Order& order) {
  const fsdp::UnitPlan plan = chain_plan(c);
  TrainerSettings t = trainer_settings_of(c, plan);
  t.meta = true;
  const CostModel model = cost_model_of(c);
  fsdp::VirtualDevice device({.host_computes = true});
  VirtualClock clock(model, c.world, {}, {}, device);
  fsdp::MemoryMeter meter;
  ChainTrainer trainer(t, order, plan, device, clock, meter);
  return trained(
      [&] {
        clock.begin_step();
        const OpObserverScope scope(clock);
        trainer.step();
      },
      device, meter);
}

template <class Run>
std::string refusal(const Run& run, RankResult& out) {
  try {
    out = run();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

Json answer_to(const Json& document) {
  CaseSettings c;
  for (const auto& [name, value] : document.at("settings").items()) apply_setting(c, name, value.get<std::string>());
  validate(c);
  const auto chain = document.value("chain", Order{});
  RankResult host, virtual_one;
  const std::string there = refusal([&] { return chain.empty() ? on_host(c) : chain_on_host(c, chain); }, host);
  const std::string here =
      refusal([&] { return chain.empty() ? predicted(c) : chain_predicted(c, chain); }, virtual_one);
  if (there != here)
    return {{"differences", {"the host says '" + there + "', the virtual world '" + here + "' (empty: it ran)"}}};
  if (!there.empty()) return {{"refused", there}};
  return {{"peak", host.peak.total}, {"differences", differences(host, virtual_one)}};
}

}  // namespace
}  // namespace harness

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      answer = harness::answer_to(nlohmann::json::parse(line));
    } catch (const std::exception& e) {
      answer = {{"refused", e.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
