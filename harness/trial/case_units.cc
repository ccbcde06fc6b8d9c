#include "harness/trial/case_units.h"

#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scripted_step.h"

namespace harness {

fsdp::UnitPlan plan_of(const CaseSettings& c) {
  const fsdp::UnitOptions defaults = unit_options_of(c);
  return fsdp::make_unit_plan(describe_model(model_of(c)), fsdp::parse_wrap(c.wrap, defaults), defaults);
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
