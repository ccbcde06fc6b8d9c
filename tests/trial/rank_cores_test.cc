#include "harness/trial/rank_cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fsdp/core/clock.h"
#include "harness/trial/environment.h"
#include "harness/trial/rank_processes.h"
#include "tests/testing/time.h"

namespace harness {
namespace {

using Physical = std::vector<std::vector<int>>;

TEST(RankCores, EachRankHasAsManyOfItsOwn) {
  EXPECT_EQ(cores_of_ranks(Physical{{0}, {1}, {2}, {3}}, 2), (RankCores{{0, 1}, {2, 3}}));
  EXPECT_EQ(cores_of_ranks(Physical{{4}, {6}}, 2), (RankCores{{4}, {6}}));
  EXPECT_EQ(cores_of_ranks(Physical{{0}, {1}, {2}}, 1), (RankCores{{0, 1, 2}}));
}

TEST(RankCores, ThreadsOfAPhysicalCoreStayTogether) {
  EXPECT_EQ(cores_of_ranks(Physical{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, 2), (RankCores{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(cores_of_ranks(Physical{{0, 2}, {1, 3}}, 2), (RankCores{{0, 2}, {1, 3}}));
}

TEST(RankCores, WhatIsLeftOverBelongsToAll) {
  EXPECT_EQ(cores_of_ranks(Physical{{0}, {1}, {2}, {3}, {4}}, 3), (RankCores{{0, 3, 4}, {1, 3, 4}, {2, 3, 4}}));
}

TEST(RankCores, FewerPhysicalCoresThanRanksAreLeftToTheSystem) {
  EXPECT_EQ(cores_of_ranks(Physical{{0}, {1}}, 3), RankCores{});
  EXPECT_EQ(cores_of_ranks(Physical{{0, 1}}, 2), RankCores{});
}

// Two sockets of two cores of two threads, numbered as Linux often does; processor 8 says nothing of itself.
TEST(RankCores, ProcessorsAreGroupedByTheCoreThatTheyAreThreadsOf) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / ("shardscope_topology_" + std::to_string(getpid()));
  for (int processor = 0; processor < 8; ++processor) {
    const fs::path topology = root / ("cpu" + std::to_string(processor)) / "topology";
    fs::create_directories(topology);
    std::ofstream(topology / "physical_package_id") << processor % 2 << "\n";
    std::ofstream(topology / "core_id") << processor / 2 % 2 << "\n";
  }
  EXPECT_EQ(physical_cores({0, 1, 2, 3, 4, 5, 6, 7}, root.string()), (Physical{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
  EXPECT_EQ(physical_cores({1, 5, 6, 8}, root.string()), (Physical{{8}, {6}, {1, 5}}));
  fs::remove_all(root);
}

TEST(RankCores, TheAllowedOnesAreAsManyAsCanBeUsed) {
  EXPECT_EQ(static_cast<int>(allowed_cores().size()), usable_cores());
}

TEST(RankCores, ARankRunsOnItsCoresOnly) {
  namespace fs = std::filesystem;
  const fs::path program = fs::path(testing::TempDir()) / ("shardscope_cores_" + std::to_string(getpid()));
  std::ofstream(program) << "#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status\n";
  fs::permissions(program, fs::perms::owner_all);
  LaunchOptions options;
  options.program = program.string();
  options.count = 2;
  const std::vector<int> all = allowed_cores();
  options.cores = {{all.front()}, {all.back()}};
  {
    RankProcesses ranks(options);
    EXPECT_TRUE(ranks.on_own_cores());
    for (const int rank : {0, 1}) {
      const fsdp::Nanos deadline = fsdp::steady_now() + testing_support::kPatience;
      while (!ranks.ended(rank) && fsdp::steady_now() < deadline) ranks.wait(fsdp::steady_now() + 100'000'000);
      EXPECT_EQ(ranks.log_tail(rank), "Cpus_allowed_list:\t" + std::to_string(options.cores[rank][0]) + "\n");
    }
  }
  options.cores = {{all.front()}, {CPU_SETSIZE - 1}};
  EXPECT_FALSE(RankProcesses(options).on_own_cores()) << "the second one is refused";
  options.cores.clear();
  EXPECT_FALSE(RankProcesses(options).on_own_cores());
  fs::remove(program);
}

}  // namespace
}  // namespace harness
