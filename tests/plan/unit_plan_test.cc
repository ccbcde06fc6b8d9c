#include "fsdp/plan/unit_plan.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

UnitSpec unit(Strategy s, bool root) {
  UnitSpec u;
  u.is_root = root;
  u.options.strategy = s;
  return u;
}

TEST(ReshardsAfterForward, ByStrategyTheRootIsKept) {
  EXPECT_TRUE(reshards_after_forward(unit(Strategy::kFullShard, false)));
  EXPECT_FALSE(reshards_after_forward(unit(Strategy::kFullShard, true)));
  EXPECT_TRUE(reshards_after_forward(unit(Strategy::kHybridShard, false)));
  EXPECT_FALSE(reshards_after_forward(unit(Strategy::kShardGradOp, false)));
  EXPECT_FALSE(reshards_after_forward(unit(Strategy::kHybridShardZero2, false)));
}

TEST(ReshardsAfterForward, AnExplicitValueOverridesTheStrategy) {
  UnitSpec root = unit(Strategy::kFullShard, true);
  root.options.reshard_after_forward = true;
  EXPECT_TRUE(reshards_after_forward(root));
  UnitSpec zero2 = unit(Strategy::kShardGradOp, false);
  zero2.options.reshard_after_forward = true;
  EXPECT_TRUE(reshards_after_forward(zero2));
  UnitSpec block = unit(Strategy::kFullShard, false);
  block.options.reshard_after_forward = false;
  EXPECT_FALSE(reshards_after_forward(block));
}

TEST(ReshardsAfterForward, ASmallerGroupGivesTheFullFormBack) {
  UnitSpec root = unit(Strategy::kFullShard, true);
  root.options.reshard_group = 2;
  EXPECT_TRUE(reshards_after_forward(root));
}

TEST(ReshardsAfterForward, AReplicatedUnitHasNothingToGoBackTo) {
  UnitSpec u = unit(Strategy::kNoShard, false);
  u.options.reshard_after_forward = true;
  EXPECT_FALSE(reshards_after_forward(u));
}

}  // namespace
}  // namespace fsdp
