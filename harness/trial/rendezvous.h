// How the ranks of a trial find each other: descriptors that the launcher makes and the ranks inherit, so that nothing
// has a name that could clash or stay behind.
#pragma once
#include "harness/sweep/settings.h"
#include "harness/trial/messages.h"
#include "harness/trial/rank_processes.h"

namespace harness {

struct Rendezvous {
  Fd shared_memory;  // local collectives
  Fd listener;       // gloo: a listening socket on the loopback address, for rank 0
  int port = 0;
};

// Throws fsdp::EnvironmentError when the system gives no memory or no socket.
Rendezvous make_rendezvous(const CaseSettings& settings);

RankJob rank_job(const CaseSettings& settings, const Rendezvous& rendezvous, int rank);

}  // namespace harness
