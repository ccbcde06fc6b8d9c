#include "reports/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reports/handmade.h"

namespace {

using reports::shape_of;
using testing::ElementsAre;

TEST(SweepShape, WrapValuesStandCoarseToFineByTheirUnits) {
  const auto shape = shape_of(handmade::granularity());
  ASSERT_EQ(shape.granularity, 0);
  EXPECT_THAT(shape.axes[0].values, ElementsAre("root", "block", "sublayer"));
  EXPECT_THAT(shape.axes[0].units, ElementsAre(1, 9, 17));
  EXPECT_THAT(shape.axes[1].values, ElementsAre("none", "pre"));
  EXPECT_THAT(shape.at[2], ElementsAre(1, 0));
}

TEST(SweepShape, WithoutUnitsTheOrderOfTheSpecStays) {
  auto in = handmade::granularity();
  in.cases[4].units.reset();
  in.cases[5].units.reset();
  EXPECT_THAT(shape_of(in).axes[0].values, ElementsAre("sublayer", "block", "root"));
}

TEST(SweepShape, ASettingThatVariesWithoutBeingAnAxisIsOne) {
  auto in = handmade::granularity();
  for (std::size_t i = 0; i < in.cases.size(); ++i)
    in.cases[i].settings.emplace_back("batch", std::to_string(12 - 2 * i));
  const auto shape = shape_of(in);
  ASSERT_EQ(shape.axes.size(), 3u);
  EXPECT_EQ(shape.axes[2].name, "batch");
  EXPECT_THAT(shape.axes[2].values, ElementsAre("2", "4", "6", "8", "10", "12"));
}

TEST(SweepShape, WorkloadsKeepModelsApart) {
  auto in = handmade::granularity();
  for (std::size_t i = 0; i < in.cases.size(); ++i)
    in.cases[i].settings.emplace_back("model", i % 2 ? "gpt2" : "llama");
  const auto shape = shape_of(in);
  ASSERT_EQ(shape.workloads.size(), 2u);
  EXPECT_EQ(shape.workloads[0].label, "model llama");
  EXPECT_THAT(shape.workloads[0].cases, ElementsAre(4, 2, 0));
  EXPECT_THAT(shape.workloads[1].cases, ElementsAre(5, 3, 1));
}

TEST(SweepShape, NoCaseHasNoWorkload) {
  const auto shape = shape_of({});
  EXPECT_TRUE(shape.workloads.empty());
  EXPECT_EQ(shape.granularity, -1);
}

TEST(SweepShape, LabelsNameTheAxesThatAreNotSelfEvident) {
  EXPECT_EQ(point_label(shape_of(handmade::granularity()), 3), "block, backward prefetch pre");
}

TEST(SweepShape, AModelOfAFileIsReadByItsNameUnlessTwoShareIt) {
  auto in = handmade::granularity();
  for (std::size_t i = 0; i < in.cases.size(); ++i)
    in.cases[i].settings.emplace_back("model", i % 2 ? "gpt2" : "mine{family=qwen2,layers=2}");
  const auto shape = shape_of(in);
  EXPECT_EQ(shape.workloads[0].label, "model mine");
  EXPECT_EQ(shape.axes[2].values[0], "mine{family=qwen2,layers=2}") << "records keep the exact text";
  for (auto& c : in.cases)
    if (c.settings.back().second == "gpt2") c.settings.back().second = "mine{family=qwen2,layers=3}";
  EXPECT_EQ(shape_of(in).workloads[0].label, "model mine{family=qwen2,layers=2}");
}

}  // namespace
