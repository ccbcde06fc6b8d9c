// Transports between the ranks of a job, one after the other; all ranks make theirs in the same order.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/local_memory.h"
#include "fsdp/comm/transport.h"
#include "harness/trial/messages.h"
#include "harness/trial/rank_backend.h"

namespace harness {

// The transports know more about what they wait for than the device: they speak first.
inline constexpr fsdp::Nanos kDeviceSlack = 2'000'000'000;

inline bool own_reduce_scatter(const CaseSettings& c) {
  return c.reduce_scatter_communicator == ReduceScatterCommunicator::kOwn;
}

class TransportMaker {
 public:
  // `timeout`: of every wait of the transports.
  TransportMaker(const RankJob& job, fsdp::Nanos timeout, RankSurroundings around);

  // Of this rank's set of the communicator; the sets that it splits all ranks into make theirs at once, each under the
  // same `name`. On the wire of the job where it has one; the progress knows of every call.
  std::unique_ptr<fsdp::Transport> make(const std::string& name, fsdp::Communicator c);

 private:
  const RankJob& job_;
  const fsdp::Nanos timeout_;
  const std::optional<fsdp::Wire> wire_;
  const RankSurroundings around_;
  std::shared_ptr<fsdp::SharedMemory> memory_;
  int channel_ = 0;
};

}  // namespace harness
