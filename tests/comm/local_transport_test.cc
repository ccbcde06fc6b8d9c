#include "fsdp/comm/local_transport.h"

#include <unistd.h>

#include "fsdp/comm/wire.h"
#include "tests/comm/transport_suite.h"

namespace fsdp::testing {

std::vector<World> worlds_under_test() {
  const auto threads = [](int world, Nanos timeout, const RankMain& rank_main) {
    const auto board = make_thread_board(world);
    return run_threads(
        world, [&](int rank) { return make_local_transport(board, rank, timeout); }, rank_main);
  };
  const auto processes = [](int world, Nanos timeout, const RankMain& rank_main) {
    const int fd = create_shared_memory(world, 64 << 20);
    const auto failures = run_processes(
        world,
        [&](int rank) {
          return attach_local_transport(attach_shared_memory(fd, rank, world), rank, world, timeout, 5);
        },
        rank_main);
    close(fd);
    return failures;
  };
  const auto wire = [](int world, Nanos timeout, const RankMain& rank_main) {
    const auto board = make_thread_board(world);
    constexpr Wire kFast{2'000, 20'000'000'000};
    return run_threads(
        world,
        [&](int rank) { return std::make_unique<EmulatedWire>(make_local_transport(board, rank, timeout), kFast); },
        rank_main);
  };
  return {{"Threads", threads}, {"Processes", processes}, {"Wire", wire}};
}

}  // namespace fsdp::testing
