// How the ranks of a trial find each other: descriptors that the launcher makes and the ranks inherit, so that nothing
// has a name that could clash or stay behind.
#pragma once
#include "harness/sweep/settings.h"
#include "harness/trial/line_socket.h"
#include "harness/trial/messages.h"

namespace harness {

struct Rendezvous {
  Fd shared_memory;  // local collectives
  Fd listener;       // gloo: a listening socket for rank 0, at `host`
  int port = 0;
  std::string host = "127.0.0.1";
};

// Whether the ranks of one host meet at a store over a socket; else they share memory.
bool meets_at_store(const CaseSettings& settings);

// Throws fsdp::EnvironmentError when the system gives no memory or no socket.
Rendezvous make_rendezvous(const CaseSettings& settings);

RankJob rank_job(const CaseSettings& settings, const Rendezvous& rendezvous, int rank);

}  // namespace harness
