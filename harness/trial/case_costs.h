// What the virtual world knows of a case before it runs: its hardware, its communicators, its memory. Plain C++.
#pragma once
#include "harness/cost/cost_model.h"
#include "harness/sweep/settings.h"

namespace harness {

// The hardware of a case on device virtual; without one an assumed processor core. Throws fsdp::ConfigError.
CostModel cost_model_of(const CaseSettings& settings);
// Of each rank, that of all ranks among them; 0 where there is only one.
int count_communicators(const CaseSettings& settings);
// The case with the memory that its hardware leaves for tensors as the budget, where it names none itself.
CaseSettings with_hardware_budget(CaseSettings settings);

}  // namespace harness
