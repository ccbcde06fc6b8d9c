// What PyTorch's FSDP can do of what this program's runtime can. A case that it cannot run as asked is refused with a
// sentence; nothing close to it is run in its place. Sources: torch.distributed.fsdp of PyTorch 2.11, fully_shard
// (FSDP2) and FullyShardedDataParallel (FSDP1).
#pragma once
#include <string>
#include <vector>

#include "fsdp/plan/unit_plan.h"
#include "harness/sweep/settings.h"

namespace harness {

// The case under `runtime`, its settings that this one has no counterpart for at their defaults; `changed` gets those
// that were not ("wire 50us,10GB/s").
CaseSettings case_under(Runtime runtime, CaseSettings c, std::vector<std::string>& changed);
// Throws fsdp::ConfigError "[setting] what, what would be right". Runtime shardscope passes.
void check_runtime(const CaseSettings& c);
// The same for the units of the case's plan.
void check_runtime_units(const CaseSettings& c, const fsdp::UnitPlan& plan);

}  // namespace harness
