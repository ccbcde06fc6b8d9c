#include "harness/trial/case_costs.h"

#include "fsdp/core/errors.h"
#include "fsdp/plan/shard_layout.h"
#include "fsdp/schedule/communicators.h"
#include "harness/trial/case_units.h"

namespace harness {
namespace {
constexpr const char* kWithoutHardware = "cpu-core";
}

CostModel cost_model_of(const CaseSettings& c) {
  const Hardware hardware = c.hardware.costs ? *c.hardware.costs : load_hardware(kWithoutHardware);
  CostModel m = make_cost_model(hardware, c.hardware.name, c.world, c.ranks_per_node, c.network);
  if (m.hardware().cache_mib == 0) return m;
  fsdp::Count parameters = 0;
  for (const fsdp::UnitSpec& unit : plan_of(c).units) parameters += unit.numel;
  m.set_step_bytes(step_bytes(parameters, c.world));
  return m;
}

int count_communicators(const CaseSettings& c) {
  if (c.world == 1) return 0;
  const bool own = c.reduce_scatter_communicator == ReduceScatterCommunicator::kOwn;
  return 1 + static_cast<int>(fsdp::communicators_of(fsdp::groups_of(plan_of(c), c.world), own).size());
}

CaseSettings with_hardware_budget(CaseSettings c) {
  if (c.memory_budget != fsdp::MemoryMeter::kNoBudget) return c;
  const CostModel model = cost_model_of(c);
  const fsdp::Bytes bytes = model.memory_for_tensors(count_communicators(c));
  if (bytes < 0) {
    throw fsdp::ConfigError("[hardware] " + model.hardware().name +
                            " has no memory left for tensors; lower memory.context_gib or communicator_gib");
  }
  if (bytes > 0) c.memory_budget = bytes;
  return c;
}

}  // namespace harness
