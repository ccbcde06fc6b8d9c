// Transport over Gloo's point-to-point calls, for ranks on several machines and as the cross-check of the local one.
//
//   all_gather      ring: W-1 steps, each passes on the piece received before
//   reduce_scatter  pairwise: every rank sends piece j to rank j, and sums what it got in rank order
//   all_reduce      the two after each other, over segments
//
// Bytes travel, so every dtype does, and nothing is allocated but the pieces that a sum needs. A message's tag holds
// the call's number and a hash of what ranks must agree on: ranks that disagree do not match, and find out at the
// deadline, when each tells the rendezvous what it is in. run() returns the rank's own arrival.
// Gloo authenticates nobody and encrypts nothing (docs/trust.md).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/rendezvous.h"
#include "fsdp/comm/transport.h"

namespace fsdp {

// Blocks until all members have come, at most `connecting` (0: `timeout`). `group` names the communicator; `members`
// are the ranks in it, in order, and this one is members[group_rank]. `rendezvous` outlives the transport. Environment:
// GLOO_SOCKET_IFNAME names the network interface; without it a rendezvous on the loopback address means the loopback
// interface. Throws TimeoutError that names who has not come, CommError.
std::unique_ptr<Transport> make_gloo_transport(Rendezvous& rendezvous, const std::string& group, int group_rank,
                                               std::vector<int> members, Nanos timeout, Nanos connecting = 0);

}  // namespace fsdp
