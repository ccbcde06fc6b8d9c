// Ranks of PyTorch's own FSDP (runtime fsdp2, fsdp1): a Python program of ours, embedded, that the user's python3 runs.
// It speaks the lines of messages.h as shardscope-rank does.
#pragma once
#include <memory>
#include <string>

#include "harness/trial/messages.h"
#include "harness/trial/rank_processes.h"
#include "harness/workload/python_scripts.h"

namespace harness {

// The program as files, which last as long as its ranks run. Ranks find each other through the leader (run_store.h), as
// ours do over Gloo.
class PytorchRanks {
 public:
  PytorchRanks() : scripts_("runtime") {}
  void set_program(LaunchOptions& launch) const;

 private:
  ScriptFolder scripts_;
};
// Null for a case whose ranks are shardscope-rank.
std::unique_ptr<PytorchRanks> pytorch_ranks_of(const CaseSettings& c);

// The line with the job for a rank of the case's runtime. PyTorch's holds what Python does not work out itself:
// dimensions of the model, and units with their modules. Throws fsdp::ConfigError for units that PyTorch cannot wrap.
std::string job_line(const RankJob& job);

}  // namespace harness
