#include "harness/trial/case_units.h"

#include <utility>

#include "fsdp/core/errors.h"
#include "fsdp/core/files.h"
#include "fsdp/plan/prefetch_order.h"
#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scripted_step.h"

namespace harness {

fsdp::UnitPlan plan_of(const CaseSettings& c) {
  const fsdp::UnitOptions defaults = unit_options_of(c);
  fsdp::UnitPlan plan = fsdp::make_unit_plan(describe_model(model_of(c)), fsdp::parse_wrap(c.wrap, defaults), defaults);
  scheduler_options_of(c, plan);
  return plan;
}

fsdp::SchedulerOptions scheduler_options_of(const CaseSettings& c, const fsdp::UnitPlan& plan) {
  fsdp::SchedulerOptions o = scheduler_options_of(c);
  if (c.prefetch_order == "recorded") return o;
  const fsdp::SmallFile file = fsdp::read_small(c.prefetch_order, fsdp::kLargestSmallFile);
  if (!file.problem.empty())
    throw fsdp::ConfigError("[prefetch_order] " + c.prefetch_order + " " + file.problem +
                            "; give a file with unit names");
  fsdp::PrefetchOrder order = fsdp::parse_prefetch_order(file.text, c.prefetch_order, plan);
  o.forward_order = std::move(order.forward);
  o.backward_order = std::move(order.backward);
  return o;
}

std::vector<UnitRecord> unit_records(const CaseSettings& c, const fsdp::UnitPlan& plan) {
  const fsdp::ModuleTree tree = describe_model(model_of(c));
  std::vector<UnitRecord> records;
  for (const fsdp::UnitSpec& unit : plan.units) {
    const fsdp::UnitBytes bytes = fsdp::unit_bytes(unit, tree, c.world, 0);
    const fsdp::UnitTraits traits = fsdp::unit_traits(unit, bytes, c.world);
    records.push_back({unit.name, unit.numel, traits.unsharded_bytes, bytes.parameters, bytes.reduce,
                       std::string(name_of(unit.options.strategy))});
  }
  return records;
}

}  // namespace harness
