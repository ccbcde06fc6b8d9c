// W ranks as threads of this process, each with its device and its end of a thread board.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/device/host/host_device.h"

namespace fsdp {

struct RankWorld {
  int rank, world;
  HostDevice& device;
  HostCollectives& collectives;
};

// Runs `body` once per rank and throws the first exception that a rank ended with, in rank order.
inline void run_ranks(int world, const std::function<void(RankWorld&)>& body) {
  constexpr Nanos kTimeout = 60'000'000'000;
  const auto board = make_thread_board(world);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        HostDevice device({.rank = rank, .timeout = kTimeout});
        HostTransports transports;
        transports.shard = make_local_transport(board, rank, kTimeout);
        HostCollectives collectives(device, std::move(transports));
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

}  // namespace fsdp
