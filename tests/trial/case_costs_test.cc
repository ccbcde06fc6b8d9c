#include "harness/trial/case_costs.h"

#include <gtest/gtest.h>

namespace harness {
namespace {

constexpr fsdp::Bytes kGib = fsdp::Bytes{1} << 30;

CaseSettings h100(const std::vector<std::pair<std::string, std::string>>& settings) {
  CaseSettings c;
  apply_setting(c, "device", "virtual");
  apply_setting(c, "hardware", "h100-sxm");
  apply_setting(c, "world", "8");
  for (const auto& [name, text] : settings) apply_setting(c, name, text);
  return c;
}

TEST(CaseCosts, CommunicatorsAreThoseThatTheRanksMake) {
  const struct {
    std::vector<std::pair<std::string, std::string>> settings;
    int shared, own;
  } kRows[] = {
      {{}, 1, 2},
      {{{"world", "1"}}, 0, 0},
      {{{"strategy", "no_shard"}}, 1, 1},        // all-reduces of all ranks
      {{{"strategy", "hybrid_shard:1"}}, 1, 1},  // the same
      {{{"strategy", "hybrid_shard:8"}}, 1, 2},  // the group is the world
      {{{"strategy", "hybrid_shard:4"}}, 3, 4},  // world, shard.4, replica.4; reduce_scatter.4
      {{{"reshard_after_forward", "4"}}, 2, 3},  // world, shard.4; reduce_scatter
  };
  for (const auto& row : kRows) {
    SCOPED_TRACE(row.settings.empty() ? "full_shard" : row.settings.front().second);
    CaseSettings c = h100(row.settings);
    EXPECT_EQ(count_communicators(c), row.shared);
    apply_setting(c, "reduce_scatter_communicator", "own");
    EXPECT_EQ(count_communicators(c), row.own);
  }
}

TEST(CaseCosts, EachCommunicatorTakesItsPartOfTheBudget) {
  const auto budget = [](const char* strategy) {
    return with_hardware_budget(h100({{"strategy", strategy}})).memory_budget;
  };
  const fsdp::Bytes alone = static_cast<fsdp::Bytes>(79.11 * kGib) - 2 * kGib;  // one of 1 GiB, and the context
  EXPECT_EQ(budget("full_shard"), alone);
  EXPECT_EQ(budget("hybrid_shard:4"), alone - 2 * kGib);
}

}  // namespace
}  // namespace harness
