#include "harness/advise/effect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace harness {
namespace {

std::vector<fsdp::Nanos> samples(std::mt19937& random, int n, double mean, double sigma) {
  std::normal_distribution<double> noise(0, sigma);
  std::vector<fsdp::Nanos> v;
  for (int i = 0; i < n; ++i) v.push_back(static_cast<fsdp::Nanos>(mean * std::exp(noise(random))));
  return v;
}

TEST(Effect, OneVerdictForEachKindOfInterval) {
  using V = std::vector<fsdp::Nanos>;
  const V a(9, 100'000);
  EXPECT_EQ(paired_effect(a, V(9, 100'500), 0.02).verdict, Verdict::kSame);
  EXPECT_EQ(paired_effect(a, V(9, 110'000), 0.02).verdict, Verdict::kSlower);
  EXPECT_EQ(paired_effect(a, V(9, 90'000), 0.02).verdict, Verdict::kFaster);
  EXPECT_EQ(
      paired_effect(a, V{90'000, 95'000, 99'000, 100'000, 101'000, 103'000, 105'000, 110'000, 120'000}, 0.02).verdict,
      Verdict::kAmbiguous);
  EXPECT_EQ(paired_effect(V(2, 100), V(2, 200), 0.02).verdict, Verdict::kUnknown);
}

TEST(Effect, AGateFailsOnlyOnASureSlowdownBeyondIt) {
  using V = std::vector<fsdp::Nanos>;
  const V a(9, 100'000);
  EXPECT_TRUE(gate_fails(paired_effect(a, V(9, 106'000), 0.02), 0.05));
  EXPECT_FALSE(gate_fails(paired_effect(a, V(9, 104'000), 0.02), 0.05));
  EXPECT_FALSE(gate_fails(
      paired_effect(a, V{90'000, 95'000, 106'000, 107'000, 108'000, 109'000, 110'000, 111'000, 112'000}, 0.02), 0.05));
}

TEST(Effect, AAComparisonsAreRarelyCalledDifferent) {
  std::mt19937 random(7);
  int different = 0;
  for (int i = 0; i < 200; ++i) {
    const Effect e = paired_effect(samples(random, 15, 1e7, 0.02), samples(random, 15, 1e7, 0.02), 0.01);
    different += e.verdict == Verdict::kFaster || e.verdict == Verdict::kSlower;
  }
  EXPECT_LE(different, 10);
}

TEST(Effect, APlantedSlowdownOfThreePercentIsFound) {
  std::mt19937 random(11);
  int found = 0;
  for (int i = 0; i < 200; ++i)
    found += paired_effect(samples(random, 30, 1e7, 0.02), samples(random, 30, 1.03e7, 0.02), 0.01).verdict ==
             Verdict::kSlower;
  EXPECT_GE(found, 180);
}

TEST(Effect, StoredRunsGiveTheIntervalOfTheRatioAndSayThatTheyWereNotInterleaved) {
  using V = std::vector<fsdp::Nanos>;
  const V a{98, 99, 100, 101, 102, 100}, b{196, 198, 200, 202, 204, 200};
  const Effect e = unpaired_effect(a, b, 0.02);
  EXPECT_FALSE(e.interleaved);
  EXPECT_DOUBLE_EQ(e.effect, 1.0);
  EXPECT_DOUBLE_EQ(e.low, 196.0 / 102 - 1);
  EXPECT_DOUBLE_EQ(e.high, 204.0 / 98 - 1);
  EXPECT_EQ(e.verdict, Verdict::kSlower);
}

}  // namespace
}  // namespace harness
