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
