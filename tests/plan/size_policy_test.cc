// The vectors V1 to V9 of torch's size_based_auto_wrap_policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"
#include "fsdp/plan/wrap_policy.h"
#include "tests/plan/small_tree.h"

namespace fsdp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Units {
  std::vector<std::string> names;
  std::vector<Count> numels;
  Count root = 0;
};

UnitPlan plan_by_size(const ModuleTree& tree, Count min) { return make_unit_plan(tree, WrapSize{min}, {}); }

Units units_by_size(const std::string& tree, Count min) {
  Units units;
  for (const UnitSpec& u : plan_by_size(SmallTree::of(tree), min).units) {
    if (u.is_root) {
      units.root = u.numel;
      continue;
    }
    units.names.push_back(u.name);
    units.numels.push_back(u.numel);
  }
  return units;
}

const char* const kTreeA = "root{A(60),B{B1(120),B2(50)},C:ModuleList{C1(70),C2(80)}}";
const char* const kTreeN = "root{blk0(10){a0(50),m0(100)},blk1(10){a1(50),m1(100)},head(90)}";

TEST(SizePolicy, V1TheContainerIsEnteredButTheLeftoverBubblesUp) {
  const Units u = units_by_size(kTreeA, 100);
  EXPECT_THAT(u.names, ElementsAre("B.B1"));
  EXPECT_EQ(u.root, 260);
}

TEST(SizePolicy, V2TheThresholdIsInclusive) {
  const Units u = units_by_size(kTreeA, 60);
  EXPECT_THAT(u.names, ElementsAre("A", "B.B1", "C.C1", "C.C2"));
  EXPECT_EQ(u.root, 50);
}

TEST(SizePolicy, V3AnExactFitIsAUnit) {
  const Units u = units_by_size(kTreeA, 120);
  EXPECT_THAT(u.names, ElementsAre("B.B1"));
  EXPECT_EQ(u.root, 260);
}

TEST(SizePolicy, V4AChildTooSmallToEnterStaysWithItsParent) {
  const Units u = units_by_size(kTreeA, 121);
  EXPECT_THAT(u.names, ElementsAre("B"));
  EXPECT_THAT(u.numels, ElementsAre(170));
  EXPECT_EQ(u.root, 210);
}

TEST(SizePolicy, V5AForcedLeafVanishesIntoTheRoot) {
  const Units u = units_by_size("root{attn:MultiheadAttention{q(150),o(150)},ff(200)}", 100);
  EXPECT_THAT(u.names, ElementsAre("ff"));
  EXPECT_EQ(u.root, 300);
}

TEST(SizePolicy, V6TiedParametersAreMergedBeforeTheyAreCounted) {
  ModuleTree tree = SmallTree::of("root{E(100),mid{m1(60)},H}");
  tree.share_parameter(tree.find("H"), "weight", 0);
  const UnitPlan plan = plan_by_size(tree, 100);
  ASSERT_EQ(plan.units.size(), 1u);
  EXPECT_EQ(plan.units[0].numel, 160);
  EXPECT_THAT(plan.notes.front(), AllOf(HasSubstr("E.weight"), HasSubstr("H.weight")));
}

TEST(SizePolicy, V7UnitsNest) {
  const Units u = units_by_size(kTreeN, 60);
  EXPECT_THAT(u.names, ElementsAre("blk0", "blk0.m0", "blk1", "blk1.m1", "head"));
  EXPECT_THAT(u.numels, ElementsAre(60, 100, 60, 100, 90));
  EXPECT_EQ(u.root, 0);  // and the empty root is left out
}

TEST(SizePolicy, V8TheRemainderDecidesNotTheWhole) {
  EXPECT_THAT(units_by_size(kTreeN, 100).names, ElementsAre("blk0.m0", "blk1.m1"));
  EXPECT_EQ(units_by_size(kTreeN, 100).root, 210);
  EXPECT_THAT(units_by_size(kTreeN, 150).names, ElementsAre("blk0", "blk1"));
  EXPECT_EQ(units_by_size(kTreeN, 150).root, 90);
  EXPECT_THAT(units_by_size(kTreeN, 160).names, ElementsAre("blk0", "blk1"));
  EXPECT_EQ(units_by_size(kTreeN, 160).root, 90);
}

TEST(SizePolicy, V9OneUnitIsSaid) {
  const UnitPlan plan = plan_by_size(SmallTree::of(kTreeN), 161);
  ASSERT_EQ(plan.units.size(), 1u);
  EXPECT_EQ(plan.units[0].numel, 410);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_THAT(plan.notes[0], AllOf(HasSubstr("one unit holds 100 %"), HasSubstr("all-gather buffer 1640 bytes"),
                                   HasSubstr("blk0 with 160 parameters")));
}

TEST(SizePolicy, EveryModuleHasAReason) {
  const ModuleTree tree = SmallTree::of(kTreeA);
  const UnitPlan plan = plan_by_size(tree, 100);
  const auto reason = [&](const char* path) { return plan.decisions[tree.find(path)].reason; };
  EXPECT_EQ(reason("A"), "60 parameters are below 100: not entered");
  EXPECT_EQ(reason("B"), "remainder 50 is below 100");
  EXPECT_EQ(reason("B.B1"), "remainder 120 reaches 100");
  EXPECT_EQ(reason("C"), "ModuleList is entered, never a unit");
  EXPECT_TRUE(plan.decisions[tree.find("B.B1")].starts_unit);
  EXPECT_EQ(plan.decisions[tree.find("B.B1")].unit, 1);
  EXPECT_EQ(plan.decisions[tree.find("B.B2")].unit, 0);
}

TEST(SizePolicy, ZeroIsNoThreshold) { EXPECT_THROW(plan_by_size(SmallTree::of(kTreeA), 0), ConfigError); }

TEST(SizePolicy, OptionsAreCopiedIntoEachUnit) {
  UnitPlan plan = plan_by_size(SmallTree::of(kTreeA), 60);
  plan.units[1].options.strategy = Strategy::kNoShard;
  for (std::size_t u : {0, 2, 3, 4}) EXPECT_EQ(plan.units[u].options.strategy, Strategy::kFullShard);
}

}  // namespace
}  // namespace fsdp
