#include "harness/trial/rank_cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fsdp/core/clock.h"
#include "harness/trial/environment.h"
#include "harness/trial/rank_processes.h"

namespace harness {
namespace {

TEST(RankCores, EachRankHasAsManyOfItsOwn) {
  EXPECT_EQ(cores_of_ranks({0, 1, 2, 3}, 2), (RankCores{{0, 1}, {2, 3}}));
  EXPECT_EQ(cores_of_ranks({4, 6}, 2), (RankCores{{4}, {6}}));
  EXPECT_EQ(cores_of_ranks({0, 1, 2}, 1), (RankCores{{0, 1, 2}}));
}

TEST(RankCores, WhatIsLeftOverBelongsToAll) {
  EXPECT_EQ(cores_of_ranks({0, 1, 2, 3, 4}, 3), (RankCores{{0, 3, 4}, {1, 3, 4}, {2, 3, 4}}));
}

TEST(RankCores, FewerCoresThanRanksAreLeftToTheSystem) { EXPECT_EQ(cores_of_ranks({0, 1}, 3), RankCores{}); }

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
    for (const int rank : {0, 1}) {
      const fsdp::Nanos deadline = fsdp::steady_now() + 10'000'000'000;
      while (!ranks.ended(rank) && fsdp::steady_now() < deadline) ranks.wait(fsdp::steady_now() + 100'000'000);
      EXPECT_EQ(ranks.log_tail(rank), "Cpus_allowed_list:\t" + std::to_string(options.cores[rank][0]) + "\n");
    }
  }
  fs::remove(program);
}

}  // namespace
}  // namespace harness
