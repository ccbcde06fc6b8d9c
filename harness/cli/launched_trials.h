// Trials started by a launcher (srun, mpirun, a template): one job step per trial. The step is `shardscope sweep` of a
// spec with this one case. On one node it is one process, which starts the ranks itself; on several it is a process for
// each rank, which join (harness/trial/join.h). The result comes back through a results.db in the sweep's directory,
// which all nodes must see.
#pragma once
#include <string>

#include "harness/sweep/runner.h"
#include "harness/trial/launchers.h"

namespace harness::cli {

// `directory`: of the sweep; steps live in DIR/steps/CASE and are removed once their result is read.
RunCase launched_trials(const Launcher& launcher, const std::string& directory, int nodes);

// The spec of one case, as the step reads it.
std::string one_case_spec(const CaseSettings& settings, const CasePlan& plan);

}  // namespace harness::cli
