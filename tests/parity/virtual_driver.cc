// One case after the other on the host and predicted. What virtual_matrix.py asks.
//
//   virtual_driver < CASES    one JSON document a line (cases.h), one answer a line:
//                             {"differences": [...]}
//                             {"refused": sentence}: both refuse the case, in the same words
#include <string>

#include "fsdp/core/errors.h"
#include "harness/trial/case_costs.h"
#include "harness/trial/rank_progress.h"
#include "harness/trial/virtual_clock.h"
#include "tests/module/ranks.h"
#include "tests/parity/cases.h"
#include "tests/trial/both_worlds.h"

namespace harness {
namespace {

using Json = nlohmann::json;

// Two steps, the second one traced, as a case of a family.
template <class Step>
RankResult trained(const Step& step, fsdp::Device& device, WatchedCollectives& collectives, fsdp::MemoryMeter& meter) {
  step();
  collectives.take_counts();
  device.set_recording(true);
  step();
  RankResult out;
  out.communicated_bytes_per_step = collectives.take_counts().sent;
  out.spans = device.take_spans();
  out.peak = meter.peak();
  out.category_peaks = meter.peak_by_category();
  out.peak_cause = meter.peak_cause();
  return out;
}

RankResult chain_on_host(const ParityCase& c) {
  const fsdp::UnitPlan plan = c.plan();
  const TrainerSettings t = c.trainer_settings(plan);
  RankResult first;
  fsdp::run_ranks(c.settings.world, fsdp::groups_of(plan, c.settings.world), [&](fsdp::RankWorld& w) {
    fsdp::MemoryMeter meter;
    RankProgress progress;
    WatchedCollectives watched(w.collectives, progress);
    Trainer trainer(t, plan, w.device, watched, meter);
    RankResult mine = trained([&] { trainer.step(); }, w.device, watched, meter);
    if (w.rank == 0) first = std::move(mine);
  });
  return first;
}

RankResult chain_predicted(const ParityCase& c) {
  const fsdp::UnitPlan plan = c.plan();
  TrainerSettings t = c.trainer_settings(plan);
  t.meta = true;
  const CostModel model = cost_model_of(c.settings);
  fsdp::VirtualDevice device({.host_computes = true});
  VirtualClock clock(model, c.settings.world, {}, {}, device);
  fsdp::MemoryMeter meter;
  RankProgress progress;
  WatchedCollectives watched(clock, progress);
  Trainer trainer(t, plan, device, watched, meter);
  return trained(
      [&] {
        clock.begin_step();
        const OpObserverScope scope(clock);
        trainer.step();
      },
      device, watched, meter);
}

// Why a world takes no such case; "" where it ran.
template <class Run>
std::string refusal(const Run& run, RankResult& out) {
  try {
    out = run();
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "";
}

Json answer_to(const Json& document) {
  const ParityCase c(document);
  RankResult host, virtual_one;
  const std::string there = refusal([&] { return c.chain.empty() ? on_host(c.settings) : chain_on_host(c); }, host);
  const std::string here =
      refusal([&] { return c.chain.empty() ? predicted(c.settings) : chain_predicted(c); }, virtual_one);
  if (there != here)
    return {{"differences", {"the host says '" + there + "', the virtual world '" + here + "' (empty: it ran)"}}};
  if (!there.empty()) return {{"refused", there}};
  return {{"differences", differences(host, virtual_one)}};
}

}  // namespace
}  // namespace harness

int main() { harness::answer_lines(harness::answer_to); }
