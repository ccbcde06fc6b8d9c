#include "harness/cli/plan_view.h"

#include <algorithm>

#include "fsdp/schedule/scripted_step.h"
#include "harness/trial/case_units.h"

namespace harness::cli {
namespace {

fsdp::Bytes optimizer_bytes_per_element(const CaseSettings& c) {
  return c.optimizer == fsdp::OptimizerKind::kAdamW ? 8 : 0;
}

PlanUnit make_unit(const fsdp::UnitSpec& spec, const fsdp::ModuleTree& tree, const fsdp::UnitBytes& bytes,
                   const fsdp::UnitTraits& traits, std::int64_t all) {
  PlanUnit u;
  u.name = spec.name;
  for (const fsdp::ModuleId m : spec.modules) u.modules.push_back(tree.modules[static_cast<std::size_t>(m)].path);
  u.parameters = spec.numel;
  u.unsharded_bytes = traits.unsharded_bytes;
  u.shard_bytes = bytes.parameters;
  u.gradient_bytes = bytes.gradient;
  u.reduce_bytes = bytes.reduce;
  u.optimizer_bytes = bytes.optimizer;
  u.padding_bytes = bytes.padding * fsdp::size_of(spec.options.param_dtype);
  u.share = all == 0 ? 0 : static_cast<double>(spec.numel) / static_cast<double>(all);
  u.strategy = name_of(spec.options.strategy);
  return u;
}

void find_largest(PlanView& view) {
  for (std::size_t i = 0; i < view.units.size(); ++i) {
    const PlanUnit& u = view.units[i];
    if (u.unsharded_bytes > view.units[view.largest_unit].unsharded_bytes) view.largest_unit = i;
    const std::pair<fsdp::Bytes, const char*> requests[] = {{u.unsharded_bytes, "unsharded parameters"},
                                                            {u.reduce_bytes, "reduce input"}};
    for (const auto& [bytes, what] : requests) {
      if (bytes <= view.largest_allocation_bytes) continue;
      view.largest_allocation_bytes = bytes;
      view.largest_allocation = u.name + ", " + what;
    }
  }
}

std::string cause_of(const fsdp::MemoryPrediction& p, const std::vector<PlanUnit>& units) {
  const auto largest = std::max_element(p.peak.at_peak.begin(), p.peak.at_peak.end()) - p.peak.at_peak.begin();
  const fsdp::UnitId unit = p.peak.where.unit;
  const std::string where = unit == fsdp::kNoUnit ? "no unit" : units[static_cast<std::size_t>(unit)].name;
  return where + ", " + std::string(name_of(p.peak.where.pass)) + ", " +
         std::string(name_of(static_cast<fsdp::MemoryCategory>(largest)));
}

}  // namespace

PlanView make_plan_view(const CaseSettings& c) {
  validate_for_plan(c);
  const fsdp::ModuleTree tree = describe_model(model_of(c));
  const fsdp::UnitPlan plan = plan_of(c);
  PlanView view;
  view.notes = plan.notes;
  for (const std::string& w : setting_warnings(c)) view.notes.push_back(w);
  view.parameters = tree.numel();
  std::vector<fsdp::UnitBytes> bytes;
  std::vector<fsdp::UnitTraits> traits;
  for (const fsdp::UnitSpec& spec : plan.units) {
    bytes.push_back(fsdp::unit_bytes(spec, tree, c.world, optimizer_bytes_per_element(c)));
    traits.push_back(fsdp::unit_traits(spec, bytes.back(), c.world));
    view.units.push_back(make_unit(spec, tree, bytes.back(), traits.back(), view.parameters));
  }
  find_largest(view);
  const fsdp::MemoryPrediction p = fsdp::predict_memory(
      traits, bytes, fsdp::make_script(tree, plan, c.checkpoint == Checkpoint::kBlock), scheduler_options_of(c, plan),
      c.world, {c.accumulate, c.accumulate_sync == AccumulateSync::kEvery});
  view.at_peak = p.peak.at_peak;
  view.category_peaks = p.category_peaks;
  view.peak_bytes = p.peak.total;
  view.peak_cause = cause_of(p, view.units);
  return view;
}

}  // namespace harness::cli
