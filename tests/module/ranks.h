// W ranks as threads of this process, each with its device and its ends of thread boards.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/device/host/host_device.h"
#include "fsdp/plan/shard_layout.h"
#include "fsdp/schedule/communicators.h"

namespace fsdp {

struct RankWorld {
  int rank, world;
  HostDevice& device;
  HostCollectives& collectives;
};

// Boards of all communicators that a plan with these groups needs.
class Boards {
 public:
  Boards(int world, const PlanGroups& groups, bool own_reduce_scatter)
      : world_(world), whole_(make_thread_board(world)) {
    for (const Communicator c : communicators_of(groups, own_reduce_scatter)) {
      others_.push_back({c, {}});
      const int ranks = c.size(world);
      for (int set = 0; set < world / ranks; ++set) others_.back().sets.push_back(make_thread_board(ranks));
    }
  }
  HostTransports transports(int rank, Nanos timeout) const {
    HostTransports t;
    t.world = make_local_transport(whole_, rank, timeout);
    for (const auto& [c, sets] : others_) {
      const auto& board = sets[static_cast<std::size_t>(c.set_of(rank, world_))];
      t.others.emplace_back(c, make_local_transport(board, c.place_of(rank, world_), c.members(rank, world_), timeout));
    }
    return t;
  }

 private:
  struct Other {
    Communicator communicator;
    std::vector<std::shared_ptr<ThreadBoard>> sets;
  };
  const int world_;
  std::shared_ptr<ThreadBoard> whole_;
  std::vector<Other> others_;
};

// Runs `body` once per rank and throws the first exception that a rank ended with, in rank order.
inline void run_ranks(int world, const PlanGroups& groups, const std::function<void(RankWorld&)>& body,
                      Nanos timeout = 60'000'000'000, bool own_reduce_scatter = false) {
  const Boards boards(world, groups, own_reduce_scatter);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        HostDevice device({.rank = rank, .timeout = timeout, .shared_channel = !own_reduce_scatter});
        HostCollectives collectives(device, boards.transports(rank, timeout));
        RankWorld w{rank, world, device, collectives};
        try {
          body(w);
        } catch (...) {
          collectives.abort("rank " + std::to_string(rank) + " failed");
          device.cancel();
          throw;
        }
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& f : failures)
    if (f) std::rethrow_exception(f);
}
inline void run_ranks(int world, const std::function<void(RankWorld&)>& body) { run_ranks(world, {}, body); }

}  // namespace fsdp
