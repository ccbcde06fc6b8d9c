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

namespace fsdp {

struct RankWorld {
  int rank, world;
  HostDevice& device;
  HostCollectives& collectives;
};

// Boards of all communicators that a plan with these groups needs; groups are of consecutive ranks.
class Boards {
 public:
  Boards(int world, const PlanGroups& groups) : world_(world), groups_(groups) {
    if (groups_.shard == 0) groups_.shard = world;
    world_board_ = make_thread_board(world);
    if (groups_.shard != world) {
      shard_ = several(world / groups_.shard, groups_.shard);
      replica_ = several(groups_.shard, world / groups_.shard);
    }
    if (groups_.regather > 0) regather_ = several(world / groups_.regather, groups_.regather);
  }
  HostTransports transports(int rank, Nanos timeout) const {
    HostTransports t;
    auto whole = make_local_transport(world_board_, rank, timeout);
    if (groups_.shard == world_) {
      t.shard = std::move(whole);
    } else {
      const int group = rank / groups_.shard, place = rank % groups_.shard;
      t.shard = make_local_transport(shard_[group], place, members(group * groups_.shard, 1, groups_.shard), timeout);
      t.replica =
          make_local_transport(replica_[place], group, members(place, groups_.shard, world_ / groups_.shard), timeout);
      t.world = std::move(whole);
    }
    if (const int n = groups_.regather; n > 0)
      t.regather = make_local_transport(regather_[rank / n], rank % n, members(rank / n * n, 1, n), timeout);
    return t;
  }

 private:
  using List = std::vector<std::shared_ptr<ThreadBoard>>;
  static List several(int count, int ranks) {
    List boards;
    for (int i = 0; i < count; ++i) boards.push_back(make_thread_board(ranks));
    return boards;
  }
  static std::vector<int> members(int first, int step, int count) {
    std::vector<int> m;
    for (int i = 0; i < count; ++i) m.push_back(first + i * step);
    return m;
  }
  const int world_;
  PlanGroups groups_;
  std::shared_ptr<ThreadBoard> world_board_;
  List shard_, replica_, regather_;
};

// Runs `body` once per rank and throws the first exception that a rank ended with, in rank order.
inline void run_ranks(int world, const PlanGroups& groups, const std::function<void(RankWorld&)>& body,
                      Nanos timeout = 60'000'000'000) {
  const Boards boards(world, groups);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        HostDevice device({.rank = rank, .timeout = timeout});
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
inline void run_ranks(int world, const std::function<void(RankWorld&)>& body) { run_ranks(world, {world, 0}, body); }

}  // namespace fsdp
