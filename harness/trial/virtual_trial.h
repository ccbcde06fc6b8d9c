// One trial of a case on device virtual: a worker that stays is asked, and its answer becomes the record. Predictions
// are exact repetitions of each other, so one is enough.
#pragma once
#include "harness/trial/trial.h"

namespace harness {

// Fills the record as a trial does. Throws fsdp::EnvironmentError when no worker can be started.
void run_virtual_trial(const CaseSettings& settings, const TrialOptions& options, CaseRecord& record);

}  // namespace harness
