#include "fsdp/plan/shard_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

using testing::ElementsAre;

std::vector<Count> held_by_ranks(const ShardLayout& layout) {
  std::vector<Count> held(layout.world, 0);
  for (int r = 0; r < layout.world; ++r) {
    for (std::size_t p = 0; p < layout.numels.size(); ++p) held[r] += layout.local(p, r).end - layout.local(p, r).begin;
  }
  return held;
}

TEST(ShardLayout, CeilChunksWithoutAlignment) {
  EXPECT_THAT(held_by_ranks(make_flat_layout({10}, 4, 1)), ElementsAre(3, 3, 3, 1));
  EXPECT_EQ(make_flat_layout({10}, 4, 1).flat, 12);
  EXPECT_THAT(held_by_ranks(make_flat_layout({9}, 4, 1)), ElementsAre(3, 3, 3, 0));
  EXPECT_EQ(make_flat_layout({9}, 4, 1).flat, 12);
  EXPECT_THAT(held_by_ranks(make_flat_layout({17}, 8, 1)), ElementsAre(3, 3, 3, 3, 3, 2, 0, 0));
  EXPECT_EQ(make_flat_layout({17}, 8, 1).flat, 24);
  EXPECT_THAT(held_by_ranks(make_flat_layout({3}, 8, 1)), ElementsAre(1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_EQ(make_flat_layout({3}, 8, 1).flat, 8);
}

TEST(ShardLayout, Fsdp1WithOriginalParametersAlignsStartsOnly) {  // V14, V15
  const ShardLayout bf16 = make_flat_layout({5, 3, 10}, 4, 8, 1);
  EXPECT_THAT(bf16.offsets, ElementsAre(0, 8, 16));
  EXPECT_EQ(bf16.flat, 28);
  EXPECT_EQ(bf16.shard, 7);
  const ShardLayout fp32 = make_flat_layout({5, 3, 10}, 4, 4, 1);
  EXPECT_THAT(fp32.offsets, ElementsAre(0, 8, 12));
  EXPECT_EQ(fp32.flat, 24);
  EXPECT_EQ(fp32.shard, 6);
}

TEST(ShardLayout, Fsdp1WithoutOriginalParametersConcatenates) {  // V16
  const ShardLayout l = make_flat_layout({5, 3, 10}, 4, 1);
  EXPECT_THAT(l.offsets, ElementsAre(0, 5, 8));
  EXPECT_EQ(l.payload, 18);
  EXPECT_EQ(l.shard, 5);
  EXPECT_EQ(l.flat, 20);
}

TEST(ShardLayout, OursStartsEverythingOn128Bytes) {  // V17
  EXPECT_EQ(align_elements_for(Dtype::kBFloat16, Dtype::kFloat32), 64);
  EXPECT_EQ(align_elements_for(Dtype::kFloat32, Dtype::kBFloat16), 64);
  EXPECT_EQ(align_elements_for(Dtype::kFloat32, Dtype::kFloat32), 32);
  const ShardLayout l = make_flat_layout({5, 3, 10}, 4, 64);
  EXPECT_THAT(l.offsets, ElementsAre(0, 64, 128));
  EXPECT_EQ(l.flat, 256);
  EXPECT_EQ(l.shard, 64);
  EXPECT_EQ(l.padding(), 238);
}

struct OddCase {
  Count numel;
  int world;
  Count shard, padding;
};
void PrintTo(const OddCase& c, std::ostream* to) { *to << c.numel << " numbers over " << c.world; }
class ShardLayoutOddCounts : public testing::TestWithParam<OddCase> {};

TEST_P(ShardLayoutOddCounts, AreMendedByPadding) {  // case C34, bf16
  const ShardLayout l = make_flat_layout({GetParam().numel}, GetParam().world, 64);
  EXPECT_EQ(l.shard, GetParam().shard);
  EXPECT_EQ(l.padding(), GetParam().padding);
  EXPECT_EQ(l.shard * size_of(Dtype::kBFloat16) % kShardAlignment, 0);
}

INSTANTIATE_TEST_SUITE_P(C34, ShardLayoutOddCounts,
                         testing::Values(OddCase{1001, 8, 128, 23}, OddCase{1049088, 8, 131136, 0},
                                         OddCase{1049088, 6, 174848, 0}, OddCase{1049088, 7, 149888, 128}));

TEST(ShardLayout, RanksTileEveryParameterInOrder) {
  const std::vector<Count> numels = {5, 0, 300, 64, 1, 1000};
  for (int world : {1, 2, 3, 7, 8, 64}) {
    const ShardLayout l = make_flat_layout(numels, world, 32);
    EXPECT_EQ(l.flat, l.shard * world);
    for (std::size_t p = 0; p < numels.size(); ++p) {
      Count next = 0;
      for (int r = 0; r < world; ++r) {
        const ShardLayout::Range range = l.local(p, r);
        if (range.begin == range.end) continue;
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(r * l.shard + range.at, l.offsets[p] + range.begin);
        EXPECT_LE(range.at + range.end - range.begin, l.shard);
        next = range.end;
      }
      EXPECT_EQ(next, numels[p]);
    }
  }
}

TEST(ShardLayout, OneRankHoldsAll) {
  const ShardLayout l = make_flat_layout({7, 9}, 1, 32);
  EXPECT_EQ(l.shard, 64);
  EXPECT_EQ(l.local(1, 0).at, 32);
  EXPECT_EQ(l.local(1, 0).end, 9);
}

std::vector<Count> rows_held(const ShardLayout& l, std::size_t parameter, Count row) {
  std::vector<Count> rows;
  for (int r = 0; r < l.world; ++r) {
    const ShardLayout::Range held = l.local(parameter, r);
    rows.push_back((held.end - held.begin) / row);
  }
  return rows;
}

TEST(PerParameterLayout, PacksPaddedRowsOfEachParameter) {
  const ShardLayout a = make_per_parameter_layout({{3, 3}, {2, 2}}, 2, 1);
  EXPECT_THAT(rows_held(a, 0, 3), ElementsAre(2, 1));
  EXPECT_THAT(rows_held(a, 1, 2), ElementsAre(1, 1));
  EXPECT_EQ(a.shard, 8);
  EXPECT_EQ(a.flat, 16);
  EXPECT_THAT(a.offsets, ElementsAre(0, 12));  // the first takes 12 elements, 9 of them its own
  EXPECT_EQ(a.full, 16);

  const ShardLayout b = make_per_parameter_layout({{5, 4}, {7}, {2}}, 4, 1);
  EXPECT_THAT(rows_held(b, 0, 4), ElementsAre(2, 2, 1, 0));
  EXPECT_THAT(rows_held(b, 1, 1), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(rows_held(b, 2, 1), ElementsAre(1, 1, 0, 0));
  EXPECT_EQ(b.shard, 11);
  EXPECT_EQ(b.flat, 44);
  EXPECT_EQ(b.payload, 29);

  const ShardLayout c = make_per_parameter_layout({{3}}, 8, 1);
  EXPECT_THAT(rows_held(c, 0, 1), ElementsAre(1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_EQ(c.flat, 8);
  EXPECT_EQ(c.padding(), 5);
}

TEST(PerParameterLayout, RowsThatDoNotDivide) {  // case C17
  EXPECT_THAT(rows_held(make_per_parameter_layout({{5, 6}}, 2, 32), 0, 6), ElementsAre(3, 2));
  EXPECT_THAT(rows_held(make_per_parameter_layout({{6, 6}}, 4, 32), 0, 6), ElementsAre(2, 2, 2, 0));
  EXPECT_THAT(rows_held(make_per_parameter_layout({{3, 6}}, 4, 32), 0, 6), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(rows_held(make_per_parameter_layout({{1, 6}}, 4, 32), 0, 6), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(rows_held(make_per_parameter_layout({{1}}, 3, 32), 0, 1), ElementsAre(1, 0, 0));
}

TEST(PerParameterLayout, AloneNothingIsPaddedOrCopied) {
  const ShardLayout l = make_per_parameter_layout({{3, 3}, {2, 2}}, 1, 32);
  EXPECT_EQ(l.padding(), 0);
  EXPECT_EQ(l.full, l.shard);
  EXPECT_FALSE(l.copies());
}

TEST(PlanGroups, AreEachSizeOnceAndTheWorldIsNone) {
  const auto hybrid = [](int group) { return UnitOptions{.strategy = Strategy::kHybridShard, .group = group}; };
  const auto kept = [](int group) { return UnitOptions{.reshard_after_forward = true, .reshard_group = group}; };
  const auto groups = [](const std::vector<UnitOptions>& units) {
    UnitPlan plan;
    for (const UnitOptions& o : units) plan.units.emplace_back().options = o;
    return groups_of(plan, 8);
  };
  const PlanGroups several = groups({hybrid(4), kept(4), hybrid(2), kept(2), hybrid(4), {}});
  EXPECT_TRUE(several.world);
  EXPECT_THAT(several.shard, ElementsAre(2, 4));
  EXPECT_THAT(several.regather, ElementsAre(2, 4));
  const PlanGroups alone = groups({hybrid(8), hybrid(1), kept(8), {.strategy = Strategy::kNoShard}});
  EXPECT_TRUE(alone.world) << "a group of all ranks is the world";
  EXPECT_THAT(alone.shard, testing::IsEmpty());
  EXPECT_THAT(alone.regather, testing::IsEmpty());
  EXPECT_FALSE(groups({hybrid(4), {.strategy = Strategy::kNoShard}}).world);
  EXPECT_THAT(
      [&] {
        groups({hybrid(4), hybrid(3)});
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("groups of 3 do not divide")));
}

TEST(GradientLayout, FlatReducesAllOrNothingPerParameterTheTrainable) {
  ModuleTree tree;
  const ModuleId root = tree.add_module(-1, "", "Root");
  for (const auto& shape : std::vector<std::vector<Count>>{{4, 4}, {6}, {2, 2}})
    tree.add_parameter(root, std::to_string(tree.parameters.size()), shape, InitRule::kUniform);
  tree.parameters[1].trainable = false;
  UnitSpec unit;
  unit.parameters = {0, 1, 2};
  const GradientLayout flat = gradient_layout(unit, tree, 2);
  EXPECT_EQ(flat.layout.flat, unit_layout(unit, tree, 2).flat);
  EXPECT_THAT(flat.index, ElementsAre(0, 1, 2));
  unit.options.layout = Layout::kPerParameter;
  const GradientLayout each = gradient_layout(unit, tree, 2);
  EXPECT_THAT(each.index, ElementsAre(0, -1, 1));
  EXPECT_EQ(each.layout.flat, 16 + 4);
  for (ParameterInfo& p : tree.parameters) p.trainable = false;
  EXPECT_EQ(gradient_layout(unit, tree, 2).layout.flat, 0);
}

}  // namespace
}  // namespace fsdp
