#include "harness/analysis/signed_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "harness/analysis/statistics.h"

namespace harness {
namespace {

std::vector<double> sorted_means(const std::vector<double>& x) {
  std::vector<double> out;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = i; j < x.size(); ++j) out.push_back((x[i] + x[j]) / 2);
  std::sort(out.begin(), out.end());
  return out;
}

// The two-sided 2 % column of any table of the signed-rank test, plus one.
TEST(SignedRank, TheCriticalRanksAreThoseOfTheTables) {
  for (const auto& [n, k] : std::vector<std::pair<int, int>>{
           {6, 0}, {7, 1}, {8, 2}, {9, 4}, {10, 6}, {12, 10}, {15, 20}, {20, 44}, {30, 121}, {50, 398}})
    EXPECT_EQ(signed_rank_critical(n), k) << n;
}

TEST(SignedRank, BeyondTheExactOnesTheNormalDistributionGoesOn) {
  EXPECT_NEAR(signed_rank_critical(100), 5050 / 2.0 - 2.3263 * std::sqrt(100.0 * 101 * 201 / 24), 4);
  EXPECT_NEAR(signed_rank_critical(101), 5151 / 2.0 - 2.3263 * std::sqrt(101.0 * 102 * 203 / 24), 1);
}

TEST(SignedRank, SixValuesGiveTheirMedianMeanAndTheirEnds) {
  const Location l = signed_rank_location({6, 1, 4, 2, 16, 9});
  EXPECT_DOUBLE_EQ(l.estimate, 5.5);  // the 11th of the 21 means
  EXPECT_DOUBLE_EQ(l.low, 1);
  EXPECT_DOUBLE_EQ(l.high, 16);
  EXPECT_DOUBLE_EQ(l.coverage, 1 - 2.0 / 64);
}

TEST(SignedRank, EveryBoundIsOneOfTheMeansInItsPlace) {
  std::mt19937 random(3);
  std::student_t_distribution<double> heavy(2);
  for (int n = 1; n < 40; ++n) {
    std::vector<double> x;
    for (int i = 0; i < n; ++i) x.push_back(n % 3 == 0 ? std::round(heavy(random)) : heavy(random));
    const std::vector<double> means = sorted_means(x);
    const std::size_t k = static_cast<std::size_t>(std::max<std::int64_t>(1, signed_rank_critical(n))),
                      m = means.size();
    const Location l = signed_rank_location(x);
    EXPECT_EQ(l.low, means[k - 1]) << n;
    EXPECT_EQ(l.high, means[m - k]) << n;
    EXPECT_EQ(l.estimate, (means[(m - 1) / 2] + means[m / 2]) / 2) << n;
  }
}

TEST(SignedRank, NothingGivesNothingAndEqualValuesAPoint) {
  EXPECT_EQ(signed_rank_location({}).coverage, 0);
  const Location l = signed_rank_location(std::vector<double>(9, 0.0));
  EXPECT_EQ(l.low, 0);
  EXPECT_EQ(l.high, 0);
}

TEST(LogRatios, APairWithATimeOfNothingIsLeftOut) {
  const std::vector<double> seven = log_ratios({100, 100, 100, 100, 0, 100, 100}, {200, 200, 200, 200, 200, 200, 200});
  EXPECT_EQ(seven, std::vector<double>(6, std::log(2.0)));
  EXPECT_DOUBLE_EQ(signed_rank_location(seven).estimate, std::log(2.0));
  EXPECT_EQ(log_ratios({0, 100, 100}, {100, 0, 100}), std::vector<double>{0.0});
  EXPECT_TRUE(log_ratios({0, 0}, {0, 0}).empty());
}

// 2,000 sets of 20: about 98 % of the intervals hold the centre, for light and for heavy tails.
TEST(SignedRank, TheIntervalHoldsTheCentreAsOftenAsItSays) {
  std::mt19937 random(5);
  std::normal_distribution<double> light;
  std::student_t_distribution<double> heavy(2);
  int held[2] = {0, 0};
  for (int i = 0; i < 2000; ++i)
    for (const int kind : {0, 1}) {
      std::vector<double> x;
      for (int j = 0; j < 20; ++j) x.push_back(kind == 0 ? light(random) : heavy(random));
      const Location l = signed_rank_location(x);
      held[kind] += l.low <= 0 && l.high >= 0;
    }
  for (const int h : held) {
    EXPECT_GT(h, 1940);
    EXPECT_LT(h, 1985);
  }
}

TEST(Undisturbed, IsTheLowerQuartileBetweenTwoValuesInProportion) {
  EXPECT_EQ(undisturbed({}), 0);
  EXPECT_EQ(undisturbed({7}), 7);
  EXPECT_EQ(undisturbed({200, 100}), 125);
  EXPECT_EQ(undisturbed({500, 100, 300, 200, 400}), 200);
  EXPECT_EQ(undisturbed({100, 104, 900, 800, 700, 600}), 228);  // 104 and a quarter of the 496 to the next
}

TEST(Undisturbed, OtherProgramsInMoreThanHalfOfTheRepetitionsDoNotMoveIt) {
  std::vector<fsdp::Nanos> quiet(20, 1000), busy = quiet;
  for (int i = 0; i < 13; ++i) busy[static_cast<std::size_t>(i)] = 5000 + i;
  EXPECT_EQ(undisturbed(busy), undisturbed(quiet));
}

}  // namespace
}  // namespace harness
