#include "harness/analysis/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace harness {
namespace {

TEST(Statistics, IntervalRanksAreThoseOfTheTable) {
  const int n[] = {6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 25, 30, 40, 50, 100};
  const int k[] = {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5, 6, 8, 10, 14, 18, 40};
  const double coverage[] = {96.9, 98.4, 99.2, 96.1, 97.9, 98.8, 96.1, 97.8, 98.7, 96.5,
                             97.9, 95.1, 96.9, 98.1, 95.9, 95.7, 95.7, 96.2, 96.7, 96.5};
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(interval_rank(n[i]), k[i]) << "n = " << n[i];
    EXPECT_EQ(std::round(interval_coverage(n[i], k[i]) * 1000) / 10, coverage[i]) << "n = " << n[i];
  }
}

TEST(Statistics, FiveSamplesCannotGive95PercentAndSaySo) {
  for (int n = 1; n <= 5; ++n) EXPECT_EQ(interval_rank(n), 0);
  const SampleSummary s = summarize({50, 10, 40, 20, 30});
  EXPECT_EQ(s.ci_low, 10);
  EXPECT_EQ(s.ci_high, 50);
  EXPECT_NEAR(s.coverage, 0.9375, 1e-12);
  EXPECT_NEAR(summarize({1, 2, 3, 4}).coverage, 0.875, 1e-12);
  EXPECT_NEAR(summarize({1, 2, 3}).coverage, 0.75, 1e-12);
}

TEST(Statistics, EvenMedianRoundsHalfToEven) {
  EXPECT_EQ(summarize({1, 2}).median, 2);
  EXPECT_EQ(summarize({2, 3}).median, 2);
  EXPECT_EQ(summarize({3, 4}).median, 4);
  EXPECT_EQ(summarize({10, 20, 30, 41}).median, 25);
}

TEST(Statistics, MediansOfNumbersAndTimesAloneAreTheSame) {
  EXPECT_EQ(median(std::vector<fsdp::Nanos>{3, 2}), 2);
  EXPECT_EQ(median(std::vector<fsdp::Nanos>{41, 10, 30}), 30);
  EXPECT_EQ(median(std::vector<fsdp::Nanos>{}), 0);
  EXPECT_EQ(median(std::vector<double>{3, 2}), 2.5);
  EXPECT_EQ(median(std::vector<double>{9, 1, 4}), 4);
  EXPECT_EQ(median(std::vector<double>{}), 0);
}

TEST(Statistics, MadIsRawAndOutliersAreKept) {
  const SampleSummary s = summarize({100, 101, 99, 100, 102, 98, 500});
  EXPECT_EQ(s.median, 100);
  EXPECT_EQ(s.mad, 1);
  EXPECT_EQ(s.outliers, 1);
  EXPECT_EQ(s.n, 7);
  EXPECT_EQ(s.ci_high, 500);
}

TEST(Statistics, WithMadZeroAnyDifferentValueIsAnOutlier) {
  const SampleSummary s = summarize({5, 5, 5, 5, 6});
  EXPECT_EQ(s.mad, 0);
  EXPECT_EQ(s.outliers, 1);
}

TEST(Statistics, NothingMeasuredIsEmpty) { EXPECT_EQ(summarize({}).n, 0); }

TEST(RepeatDecision, StopsWhenNarrowAndAtTheLimits) {
  const RepeatPolicy p{.min = 6, .max = 8, .relative_ci = 0.02, .time = 1000};
  const std::vector<fsdp::Nanos> tight(6, 1000), wide{1000, 2000, 1500, 1200, 1700, 1300};
  EXPECT_EQ(repeat_decision(p, {1000, 1000}, 0), RepeatStop::kContinue);
  EXPECT_EQ(repeat_decision(p, tight, 0), RepeatStop::kNarrow);
  EXPECT_EQ(repeat_decision(p, wide, 999), RepeatStop::kContinue);
  EXPECT_EQ(repeat_decision(p, wide, 1000), RepeatStop::kTime);
  EXPECT_EQ(repeat_decision(p, std::vector<fsdp::Nanos>(8, 7), 0), RepeatStop::kMax);
  EXPECT_EQ(repeat_decision(p, {}, 5000), RepeatStop::kContinue) << "one sample at least";
}

TEST(RepeatDecision, FiveEqualSamplesAreNotNarrow) {
  const RepeatPolicy p{.min = 3, .max = 10};
  EXPECT_EQ(repeat_decision(p, std::vector<fsdp::Nanos>(5, 1000), 0), RepeatStop::kContinue);
}

// Times come from files and from ranks.
TEST(Statistics, ExtremeTimesOverflowNothing) {
  constexpr fsdp::Nanos kMost = std::numeric_limits<fsdp::Nanos>::max(),
                        kLeast = std::numeric_limits<fsdp::Nanos>::min();
  EXPECT_EQ(median(std::vector<fsdp::Nanos>{kMost, kMost - 2}), kMost - 1);
  EXPECT_EQ(median(std::vector<fsdp::Nanos>{kMost, kLeast}), 0);  // -1/2, to the even neighbour
  EXPECT_EQ(median(std::vector<fsdp::Nanos>{-3, -2}), -2);
  EXPECT_EQ(median(std::vector<fsdp::Nanos>{-3, 0}), -2);
  EXPECT_EQ(median(std::vector<fsdp::Nanos>{1, 2}), 2);
  const SampleSummary s = summarize({kLeast, 0, kMost});
  EXPECT_EQ(s.median, 0);
  EXPECT_EQ(s.mad, kMost);
  EXPECT_EQ(undisturbed({0, kMost, kMost}), kMost / 4 * 2 + 1);
  EXPECT_EQ(repeat_decision({6, 30, 0.02, 1}, {kLeast, kMost, 0, 0, 0, 0, 0}, 0), RepeatStop::kContinue);
}

}  // namespace
}  // namespace harness
