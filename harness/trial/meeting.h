// Where the ranks of a run that a launcher has started find their leader.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "harness/trial/launchers.h"
#include "harness/trial/network.h"

namespace harness {

struct Meeting {
  std::string address;     // at which the leader is reached, and listens if it is one of its host's own
  std::vector<int> ports;  // the first free one is the leader's
  std::string run;         // for the handshake
};
// The same for all ranks of a run. Throws fsdp::ConfigError when rank 0's host has no address.
Meeting meeting_of(const RankPlace& place, const std::string& secret);

// Throws fsdp::EnvironmentError.
Listener listen_at(const Meeting& meeting, const RankPlace& place);

// Reaches the leader and proves the secret; tries again until the deadline (steady clock), as long as `go_on` says so.
// Throws fsdp::CommError.
LineSocket meet_leader(const Meeting& meeting, const std::string& secret, fsdp::Nanos deadline,
                       const std::function<bool()>& go_on);

}  // namespace harness
