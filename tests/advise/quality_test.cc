#include "harness/advise/quality.h"

#include <gtest/gtest.h>

#include <random>

namespace harness {
namespace {

using V = std::vector<fsdp::Nanos>;

TEST(Quality, SlowFirstSamplesAreAWarmUpThatWasTooShort) {
  EXPECT_EQ(warmup_length({2000, 1500, 1001, 1000, 999, 1000, 1002, 998}), 2);
  EXPECT_EQ(warmup_length({1001, 1000, 999, 1000, 1002, 998, 1003, 997}), 0);
  EXPECT_EQ(warmup_length({5000, 4000, 1001, 1000, 999, 1000}), 2);
  EXPECT_EQ(warmup_length({5000, 4000, 1001, 1000, 999}), 0) << "too few to say";
}

TEST(Quality, ADriftWiderThanTheIntervalIsFlagged) {
  V steady(30, 1000), late(15, 1200);
  steady.insert(steady.end(), late.begin(), late.end());
  EXPECT_TRUE(judge_samples(steady).drifted);
  EXPECT_NEAR(judge_samples(steady).drift, 0.2, 1e-12);
  EXPECT_FALSE(judge_samples({1000, 1100, 1050, 1060, 1110, 1020, 1080, 1100, 1090}).drifted)
      << "within the interval of the median nothing is proven";
}

TEST(Quality, OutliersAreCountedAndKept) {
  const SampleQuality q = judge_samples({1000, 1001, 999, 1000, 1002, 5000, 998});
  EXPECT_EQ(q.outliers, 1);
  EXPECT_EQ(q.n, 7);
  ASSERT_EQ(q.notes().size(), 1u);
  EXPECT_EQ(q.notes()[0], "1 of 7 samples are outliers; they are kept");
}

V around(std::mt19937& random, int n, double level, double slope = 0) {
  std::normal_distribution<double> noise(0, 0.004);
  V v;
  for (int i = 0; i < n; ++i)
    v.push_back(static_cast<fsdp::Nanos>(level * (1 + slope * i / n) * std::exp(noise(random))));
  return v;
}
V joined(V a, const V& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Quality, AShiftOfTheLevelIsNamedWithItsPlaceAndNotCalledOutliers) {
  std::mt19937 random(7);
  const V v = joined(around(random, 300, 1e7), around(random, 200, 1.3e7));
  const SampleQuality q = judge_samples(v);
  ASSERT_EQ(q.shifts.size(), 1u);
  EXPECT_EQ(q.shifts[0].at, 300);
  EXPECT_NEAR(static_cast<double>(q.shifts[0].before), 1e7, 2e4);
  EXPECT_NEAR(static_cast<double>(q.shifts[0].after), 1.3e7, 3e4);
  EXPECT_LT(q.outliers, 5);
  ASSERT_FALSE(q.notes().empty());
  EXPECT_NE(q.notes()[0].find("the level shifts after sample 300 of 500"), std::string::npos) << q.notes()[0];
  EXPECT_NE(q.notes()[0].find("+30.0 %"), std::string::npos) << q.notes()[0];
}

TEST(Quality, ALevelThatComesBackShiftsTwice) {
  std::mt19937 random(8);
  const V v = joined(joined(around(random, 150, 1e7), around(random, 201, 1.2e7)), around(random, 149, 1e7));
  const auto shifts = level_shifts(v);
  ASSERT_EQ(shifts.size(), 2u);
  EXPECT_NEAR(shifts[0].at, 150, 2);
  EXPECT_NEAR(shifts[1].at, 351, 2);
}

TEST(Quality, AShiftAmongFewSamplesAndOneDownwards) {
  std::mt19937 random(9);
  const auto shifts = level_shifts(joined(around(random, 14, 1e7), around(random, 14, 0.9e7)));
  ASSERT_EQ(shifts.size(), 1u);
  EXPECT_EQ(shifts[0].at, 14);
}

TEST(Quality, NeitherADriftNorNoiseNorAFewSlowSamplesIsAShift) {
  std::mt19937 random(10);
  int found = 0;
  for (int t = 0; t < 200; ++t) found += !level_shifts(around(random, 100, 1e7)).empty();
  EXPECT_LE(found, 1) << "of 200";
  for (const int n : {30, 100, 500})
    EXPECT_TRUE(level_shifts(around(random, n, 1e7, 0.2)).empty()) << n << " samples that drift by 20 %";
  V slow = around(random, 100, 1e7);
  for (const std::size_t i : {std::size_t{20}, std::size_t{50}, std::size_t{80}}) slow[i] *= 3;
  EXPECT_TRUE(level_shifts(slow).empty());
  EXPECT_EQ(judge_samples(slow).outliers, 3);
}

TEST(Quality, SteadySamplesAreRarelyFlagged) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0, 0.02);
  int flagged = 0;
  for (int t = 0; t < 500; ++t) {
    V v;
    for (int i = 0; i < 15; ++i) v.push_back(static_cast<fsdp::Nanos>(1e7 * std::exp(noise(random))));
    const SampleQuality q = judge_samples(v);
    flagged += q.drifted || q.warmup > 0;
  }
  EXPECT_LE(flagged, 25) << "of 500";
}

}  // namespace
}  // namespace harness
