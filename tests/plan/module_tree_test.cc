#include "fsdp/plan/module_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/small_tree.h"

namespace fsdp {
namespace {

using testing::ElementsAre;

TEST(ModuleTree, PathsAndIndicesFollowRegistration) {
  const ModuleTree t = SmallTree::of("root{a(2){b(3)},c(4)}");
  EXPECT_EQ(t.modules[0].path, "");
  EXPECT_EQ(t.modules[2].path, "a.b");
  EXPECT_EQ(t.parameters[1].name, "a.b.weight");
  EXPECT_EQ(t.parameters[2].index, 2);
  EXPECT_THAT(t.modules[0].children, ElementsAre(1, 3));
  EXPECT_EQ(t.find("a.b"), 2);
  EXPECT_EQ(t.find(""), 0);
  EXPECT_EQ(t.find("b"), -1);
}

TEST(ModuleTree, ASubtreeIsInPreOrderAndEndsWhereItEnds) {
  const ModuleTree t = SmallTree::of("root{a{b{c},d},e{f}}");
  EXPECT_THAT(t.subtree(1), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(t.subtree(3), ElementsAre(3));
  EXPECT_THAT(t.subtree(5), ElementsAre(5, 6));
  EXPECT_EQ(t.subtree(0).size(), 7u);
}

TEST(ModuleTree, ASharedParameterCountsOnceInEverySum) {
  ModuleTree t = SmallTree::of("root{a{b(10)},c{d(5)}}");
  t.share_parameter(t.find("c"), "tied", 0);
  EXPECT_EQ(t.numel(), 15);
  EXPECT_EQ(t.subtree_numel(0), 15);
  EXPECT_EQ(t.subtree_numel(t.find("a")), 10);
  EXPECT_EQ(t.subtree_numel(t.find("c")), 15);
  EXPECT_THAT(t.parameters[0].aliases, ElementsAre("c.tied"));
}

TEST(ModuleTree, NumelIsTheProductOfTheShape) {
  ModuleTree t = SmallTree::of("root");
  const ParameterId p = t.add_parameter(0, "w", {3, 4, 5}, InitRule::kUniform);
  EXPECT_EQ(t.parameters[p].numel(), 60);
}

TEST(ModuleTree, OutOfPreOrderIsABug) {
  ModuleTree t = SmallTree::of("root{a{b},c}");
  EXPECT_THROW(t.add_module(t.find("a"), "late", "x"), std::logic_error);
  EXPECT_THROW(t.add_module(-1, "", "second root"), std::logic_error);
}

}  // namespace
}  // namespace fsdp
