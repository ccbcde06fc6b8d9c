// One trial of a case: fresh rank processes, started, led through their repetitions, watched, and ended whatever
// happens.
//
// Life of a trial
//   1 settings are validated; the shared memory (or the rendezvous socket) is made; W ranks start and get their job
//   2 every rank says `ready`: models are built
//   3 `repeat` until the policy says stop; the first one includes the warm-up steps, outside its time
//   4 `trace` (or `finish`), results come back, sockets are closed, ranks end
//   5 results become a CaseRecord (assemble.h)
// The first rank that fails, dies or stays silent ends the trial: the causes of all ranks are collected for at most a
// second, the most telling one is kept (a crash explains its peers' communication errors, not the other way round), the
// group is killed.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/analysis/statistics.h"
#include "harness/store/records.h"
#include "harness/sweep/settings.h"
#include "harness/trial/rank_group.h"

namespace harness {

// Told to TrialOptions::progress each time the ranks are asked for something, on the thread of run_trial.
struct TrialProgress {
  std::string doing;        // "while starting", "in repetition 2", ...
  int repetitions = 0;      // done
  std::vector<pid_t> pids;  // by rank
};

struct TrialOptions {
  RepeatPolicy repeat;
  bool trace = true;
  fsdp::Nanos timeout = 120'000'000'000;  // for the whole trial; 0: none
  std::string rank_program;               // empty: default_rank_program()
  bool pin = false;                       // ranks that the trial starts here keep to cores of their own (rank_cores.h)
  std::string log_dir;                    // rankN.log; empty: kept in memory, the end of it goes into reasons
  std::function<void(const TrialProgress&)> progress;
  // Gives the ranks, started by others and with their jobs; empty: the trial starts them here.
  std::function<std::unique_ptr<RankGroup>()> ranks;
  const std::atomic<bool>* stop = nullptr;  // set by Ctrl-C: the trial ends within moments as `skipped`, "interrupted"
};

// Never throws for what becomes of the case: that is the record's status and reason. Throws fsdp::EnvironmentError when
// shardscope-rank cannot be started at all; where the user's Python cannot, the case is skipped with the reason. May be
// called from several threads at once.
CaseRecord run_trial(const CaseSettings& settings, const TrialOptions& options);

// $SHARDSCOPE_RANK, else `shardscope-rank` beside the running program.
std::string default_rank_program();

}  // namespace harness
