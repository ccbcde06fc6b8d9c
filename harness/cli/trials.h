// The real trials behind the runner's RunCase, and what `run` and `sweep` have in common.
#pragma once
#include <atomic>
#include <optional>
#include <string>

#include "harness/store/records.h"
#include "harness/sweep/runner.h"
#include "harness/trial/launchers.h"

namespace harness::cli {

// Runs trials with the rank program beside this one.
RunCase real_trials();
// Whether the virtual world says that a case on the CPU fits in its budget; std::nullopt: it cannot run it.
std::optional<bool> predicted_to_fit(const CaseSettings& settings, const std::atomic<bool>* stop);
// Throws fsdp::EnvironmentError when the ranks of a case on the CPU are more processes than one machine should start.
void check_ranks_on_this_machine(const CaseSettings& settings);
// Spans of the traced step as a Chrome / Perfetto file; gzip if so named. `follow`: its folder may be a link. Throws
// fsdp::ConfigError.
void write_trace(const std::string& path, const CaseRecord& r, bool follow = true);
// Where this process stands among ranks that a launcher has started; std::nullopt when it is alone, or one of one.
// Throws fsdp::ConfigError.
std::optional<RankPlace> launched_place();
// Of a command that only predicts, which starts no rank and asks for no launcher's word: true in the processes of a
// launch beside its first, which have nothing to add.
bool predicts_beside_the_first();
// Rank 0 of them: trials with the ranks that join. This and follow() throw fsdp::ConfigError when the ranks are on
// several hosts and no secret is set (trial/run_secret.h).
RunCase joined_trials(const RankPlace& place);
// Another rank: takes part in the trial that rank 0 leads, prints nothing on standard output, and ends as rank 0 says.
void follow(const RankPlace& place, const CaseSettings& settings, const std::string& log_dir,
            const std::atomic<bool>& stop);

}  // namespace harness::cli
