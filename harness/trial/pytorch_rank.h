// Ranks of PyTorch's own FSDP (runtime fsdp2, fsdp1): a Python program of ours, embedded, that the user's python3 runs.
// It speaks the lines of messages.h as shardscope-rank does.
#pragma once
#include <string>
#include <vector>

#include "harness/trial/messages.h"
#include "harness/trial/rank_processes.h"
#include "harness/workload/python_scripts.h"

namespace harness {

// What a trial of such ranks needs on disk while it lasts: the program, and the file at which the ranks find each
// other.
class PytorchRanks {
 public:
  PytorchRanks() : scripts_("runtime") {}
  void set_program(LaunchOptions& launch) const;

 private:
  ScriptFolder scripts_;
};

// The job, with what Python does not work out itself: dimensions of the model, and units with their modules. Throws
// fsdp::ConfigError for units that PyTorch cannot wrap.
std::string pytorch_job_line(const RankJob& job);

}  // namespace harness
