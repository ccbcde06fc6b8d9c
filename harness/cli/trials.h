// The real trials behind the runner's RunCase, and what `run` and `sweep` have in common.
#pragma once
#include <string>

#include "harness/store/records.h"
#include "harness/sweep/runner.h"

namespace harness::cli {

// Runs trials with the rank program beside this one.
RunCase real_trials();
// Spans of the traced step as a Chrome / Perfetto file; gzip if so named. Throws fsdp::ConfigError.
void write_trace(const std::string& path, const CaseRecord& r);
// Throws fsdp::ConfigError when some launcher has started this process as one of several ranks.
void refuse_foreign_launcher();

}  // namespace harness::cli
