#include "harness/trial/case_costs.h"

#include "fsdp/core/errors.h"
#include "harness/trial/case_units.h"

namespace harness {
namespace {
constexpr const char* kWithoutHardware = "cpu-core";
}

CostModel cost_model_of(const CaseSettings& c) {
  CostModel m =
      make_cost_model(c.hardware.empty() ? kWithoutHardware : c.hardware, c.world, c.ranks_per_node, c.network);
  if (m.hardware().cache_mib == 0) return m;
  fsdp::Count parameters = 0;
  for (const fsdp::UnitSpec& unit : plan_of(c).units) parameters += unit.numel;
  m.set_step_bytes(step_bytes(parameters, c.world));
  return m;
}

int communicators_of(const CaseSettings& c) {
  if (c.world == 1) return 0;
  const fsdp::UnitOptions o = unit_options_of(c);
  return 1 + (c.reduce_scatter_communicator == "own" ? 1 : 0) + (o.group > 0 ? 1 : 0);
}

CaseSettings with_hardware_budget(CaseSettings c) {
  if (c.memory_budget != "none") return c;
  const CostModel model = cost_model_of(c);
  const fsdp::Bytes bytes = model.memory_for_tensors(communicators_of(c));
  if (bytes < 0) {
    throw fsdp::ConfigError("[hardware] " + model.hardware().name +
                            " has no memory left for tensors; lower memory.context_gib or communicator_gib");
  }
  if (bytes > 0) c.memory_budget = std::to_string(bytes) + "B";
  return c;
}

}  // namespace harness
