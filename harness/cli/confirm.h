// recommend --confirm: the recommended case and its runners-up under PyTorch's own FSDP, on this machine.
#pragma once
#include <string>
#include <vector>

#include "harness/advise/recommend.h"
#include "harness/store/records.h"

namespace harness::cli {

// Runs them in two rounds, one after the other in each, so that a machine that changes does so for all; what PyTorch
// has no counterpart for is left out. Returns sentences: the step of each, and whether the choice holds. Progress goes
// to standard error. Throws fsdp::ConfigError for predictions, which no run on this machine confirms.
std::string confirmation(const Recommendation& r, const std::vector<CaseRecord>& cases, Runtime runtime);

}  // namespace harness::cli
