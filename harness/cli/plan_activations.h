// The peak of a case with its activations, from the virtual world: what `plan --activations` adds.
#pragma once
#include "harness/cli/plan_view.h"

namespace harness::cli {

// One step of the runtime and the model on meta tensors by a rank program of its own; takes its start (0.3 s) and needs
// no memory. No budget applies. Throws fsdp::ConfigError, EnvironmentError when there is no rank program.
fsdp::MemoryPeak peak_with_activations(const CaseSettings& settings, std::string& cause);

}  // namespace harness::cli
