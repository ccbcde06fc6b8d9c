// Communicators that the units of a plan call. Every rank makes them, in this order.
#pragma once
#include <algorithm>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/plan/shard_layout.h"

namespace fsdp {

// All but that of all ranks, which every world has.
inline std::vector<Communicator> communicators_of(const PlanGroups& groups, bool own_reduce_scatter) {
  std::vector<Communicator> all;
  if (own_reduce_scatter && groups.world) all.emplace_back(Communicator::kReduceScatter);
  for (const int ranks : groups.shard) {
    all.emplace_back(Communicator::kShard, ranks);
    if (own_reduce_scatter) all.emplace_back(Communicator::kReduceScatter, ranks);
    all.emplace_back(Communicator::kReplica, ranks);
  }
  for (const int ranks : groups.regather) {
    const Communicator c(Communicator::kShard, ranks);
    if (std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
  }
  return all;
}

}  // namespace fsdp
