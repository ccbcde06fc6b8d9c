// A run whose ranks a launcher has started (torchrun, srun, mpirun): every process joins, rank 0 leads.
//
//   1 every process starts its own rank program, and connects to the leader: rank 0 listens at MASTER_PORT, or, where
//     torchrun's own store has that port, at one that follows from the run's secret. Nothing is read from that store
//   2 both prove that they know the secret (handshake.h); the rank says who it is; the leader answers all with what is
//     wrong and a table of who came (case C30), or with their jobs
//   3 from then on it passes lines between the leader and its rank program, and tells the leader how that ended; the
//     leader runs the trial (trial.h) as if it had started the ranks
// Ranks of one host share memory; across hosts they use Gloo, over the interface by which the leader is reached.
// What strangers can do: docs/trust.md.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "harness/trial/launchers.h"
#include "harness/trial/trial.h"

namespace harness {

struct JoinOptions {
  std::string rank_program;  // empty: default_rank_program()
  std::string log_dir;       // rankN.log; empty: kept in memory
  const std::atomic<bool>* stop = nullptr;
};

// Every rank but 0. Returns the exit code that the leader gives, 130 when stopped. Throws fsdp::ConfigError with the
// leader's table; fsdp::CommError when rank 0 is not reached within the settings' step_timeout, goes away, or says
// nothing for so long. `secret`: run_secret.h.
int follow_trial(const RankPlace& place, const std::string& secret, const CaseSettings& settings,
                 const JoinOptions& options);

// Rank 0: run_trial with the ranks that join. Throws as run_trial and follow_trial do, fsdp::EnvironmentError when
// nothing can be served at the contract's port.
CaseRecord lead_trial(const RankPlace& place, const std::string& secret, const CaseSettings& settings,
                      const TrialOptions& options);

}  // namespace harness
