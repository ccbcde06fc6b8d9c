#include "harness/trial/case_units.h"

#include <utility>

#include "fsdp/core/errors.h"
#include "fsdp/plan/prefetch_order.h"
#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scripted_step.h"

namespace harness {

fsdp::UnitPlan plan_of(const CaseSettings& c) {
  fsdp::UnitPlan plan = fsdp::make_unit_plan(describe_model(model_of(c)), c.wrap.policy, c.unit);
  scheduler_options_of(c, plan);
  return plan;
}

fsdp::SchedulerOptions scheduler_options_of(const CaseSettings& c, const fsdp::UnitPlan& plan) {
  fsdp::SchedulerOptions o = scheduler_options_of(c);
  if (!c.prefetch_order) return o;
  fsdp::PrefetchOrder order = fsdp::parse_prefetch_order(c.prefetch_order->text, c.prefetch_order->path, plan);
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
