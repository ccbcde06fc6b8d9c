// The units of a case from its settings alone: what the ranks build, and what a row has even when its case has no room
// to run.
#pragma once
#include <vector>

#include "fsdp/plan/unit_plan.h"
#include "harness/store/records.h"
#include "harness/sweep/settings.h"

namespace harness {

// Throws fsdp::ConfigError, for instance when no module matches the wrap or a file names units that there are not.
fsdp::UnitPlan plan_of(const CaseSettings& settings);
// With the order of `prefetch_order`, by the plan's units. Throws fsdp::ConfigError, for instance for an unknown unit.
fsdp::SchedulerOptions scheduler_options_of(const CaseSettings& settings, const fsdp::UnitPlan& plan);
std::vector<UnitRecord> unit_records(const CaseSettings& settings, const fsdp::UnitPlan& plan);

}  // namespace harness
