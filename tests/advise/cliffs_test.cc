#include "harness/advise/cliffs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace harness {
namespace {

std::vector<CurvePoint> curve(const std::vector<double>& y, double half_width = 0.001) {
  std::vector<CurvePoint> c;
  for (std::size_t i = 0; i < y.size(); ++i)
    c.push_back({std::to_string(i + 1), true, y[i], y[i] * (1 - half_width), y[i] * (1 + half_width), std::nullopt, 1});
  return c;
}

TEST(Cliffs, V47OneCliffBetweenTheThirdAndTheFourthPoint) {
  const auto found = find_cliffs(curve({100, 102, 101, 140, 139}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].fast, 2u);
  EXPECT_EQ(found[0].slow, 3u);
}
TEST(Cliffs, V48AUniformSlopeIsNoCliff) { EXPECT_TRUE(find_cliffs(curve({100, 112, 125, 140, 157})).empty()); }
TEST(Cliffs, V49OverlappingIntervalsAreNoCliff) {
  auto c = curve({100, 111});
  c[0].low = 95, c[0].high = 106, c[1].low = 104, c[1].high = 118;
  EXPECT_TRUE(find_cliffs(c).empty());
}
TEST(Cliffs, AMissingPointIsToldAsAGap) {
  auto c = curve({100, 101, 100, 160, 101});
  c[3].measured = false;
  c[4].y = 180, c[4].low = 179, c[4].high = 181;
  const auto found = find_cliffs(c);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].gap_between);
}
TEST(Cliffs, TheClassThatGrewIsTheCause) {
  auto c = curve({100, 200});
  Partition fast{}, slow{};
  fast[static_cast<int>(PartitionClass::kCompute)] = 80;
  slow[static_cast<int>(PartitionClass::kCompute)] = 70;
  fast[static_cast<int>(PartitionClass::kHost)] = 10;
  slow[static_cast<int>(PartitionClass::kHost)] = 110;
  slow[static_cast<int>(PartitionClass::kCopy)] = 10;
  c[0].partition = fast, c[1].partition = slow;
  const auto found = find_cliffs(c);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].causes.size(), 1u);
  EXPECT_EQ(found[0].causes[0].cls, PartitionClass::kHost);
  EXPECT_NEAR(found[0].causes[0].share, 100.0 / 110, 1e-12);
  EXPECT_NE(describe(found[0], c, "step").find("host-bound"), std::string::npos);
}
TEST(Cliffs, ComputationThatGrewSaysWhatDidIt) {
  auto c = curve({100, 200});
  Partition fast{}, slow{};
  fast[static_cast<int>(PartitionClass::kCompute)] = 80;
  slow[static_cast<int>(PartitionClass::kOverlapped)] = 180;
  c[0].partition = fast, c[1].partition = slow;
  EXPECT_EQ(growth_between(c[0], c[1]).parts.at(0).ns, 100) << "compute, overlapped or not, as one";
  EXPECT_NE(growth_between(c[0], c[1]).compute_why.find("smaller matrix products"), std::string::npos);
  c[1].contention_ns = 60;
  EXPECT_NE(growth_between(c[0], c[1]).compute_why.find("contention"), std::string::npos);
  c[1].contention_ns = 10, c[0].checkpoint = "none", c[1].checkpoint = "block";
  EXPECT_NE(growth_between(c[0], c[1]).compute_why.find("recompute"), std::string::npos);
}

TEST(Cliffs, WithoutAMajorityTheTwoLargestAreNamed) {
  auto c = curve({100, 200});
  Partition fast{}, slow{};
  slow[static_cast<int>(PartitionClass::kHost)] = 40;
  slow[static_cast<int>(PartitionClass::kExposedReduceScatter)] = 35;
  slow[static_cast<int>(PartitionClass::kCopy)] = 25;
  c[0].partition = fast, c[1].partition = slow;
  const auto found = find_cliffs(c);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].causes.size(), 2u);
  EXPECT_EQ(found[0].causes[1].cls, PartitionClass::kExposedReduceScatter);
}

// Smooth curves: y = a + b x^p over 5 to 9 points, samples with 2 % noise, intervals from the samples as in a sweep.
TEST(Cliffs, NoFalseCliffInTwoHundredSmoothCurvesWithTwoPercentNoise) {
  std::mt19937 random(20261129);
  std::normal_distribution<double> noise(0, 0.02);
  std::uniform_real_distribution<double> uniform(0, 1);
  int false_cliffs = 0;
  for (int t = 0; t < 200; ++t) {
    const double b = 0.1 * uniform(random), p = 0.5 + uniform(random);
    const int n = 5 + static_cast<int>(random() % 5);
    std::vector<CurvePoint> c;
    for (int i = 0; i < n; ++i) {
      const double y = 1 + b * std::pow(i, p);
      std::vector<double> s;
      for (int k = 0; k < 9; ++k) s.push_back(y * std::exp(noise(random)));
      std::sort(s.begin(), s.end());
      c.push_back(
          {std::to_string(i), true, s[4], s[1], s[7], std::nullopt, 1});  // 96.1 % interval of the median, n = 9
    }
    false_cliffs += static_cast<int>(find_cliffs(c).size());
  }
  EXPECT_EQ(false_cliffs, 0);
}

}  // namespace
}  // namespace harness
