// How the ranks of a trial find each other: a descriptor that the launcher makes and the ranks inherit, so that nothing
// has a name that could clash or stay behind; or what they tell each other through who leads them (run_store.h).
#pragma once
#include "harness/sweep/settings.h"
#include "harness/trial/line_socket.h"
#include "harness/trial/messages.h"

namespace harness {

struct Rendezvous {
  Fd shared_memory;  // local collectives; not open: Gloo
  std::string host;  // Gloo: an address of the network that it uses; empty: local collectives
};

// Throws fsdp::EnvironmentError when the system gives no memory.
Rendezvous make_rendezvous(const CaseSettings& settings);

RankJob rank_job(const CaseSettings& settings, const Rendezvous& rendezvous, int rank);

}  // namespace harness
