#include "harness/sweep/boundary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace harness {
namespace {

int log2_ceil(int n) {
  int k = 0;
  while ((1 << k) < n) ++k;
  return k;
}

// Runs a search over n values of which the first `fitting` fit.
BoundarySearch searched(int n, int fitting, std::optional<int> predicted = std::nullopt) {
  BoundarySearch s(n, predicted);
  while (const auto i = s.next()) s.record(*i, *i < fitting ? Fit::kFits : Fit::kDoesNot);
  return s;
}

void expect_exact(const BoundaryResult& r, int n, int fitting) {
  ASSERT_TRUE(r.finished);
  EXPECT_EQ(r.last_fit, fitting > 0 ? std::optional<int>(fitting - 1) : std::nullopt);
  EXPECT_EQ(r.first_oom, fitting < n ? std::optional<int>(fitting) : std::nullopt);
  EXPECT_TRUE(r.violations.empty());
}

TEST(BoundarySearch, FindsEveryBoundaryExactlyWithAtMostLogTwoPlusOneTrials) {
  for (int n = 1; n <= 130; ++n) {
    for (int fitting = 0; fitting <= n; ++fitting) {
      const BoundaryResult r = searched(n, fitting).result();
      expect_exact(r, n, fitting);
      ASSERT_LE(r.trials, log2_ceil(n) + 1) << n << " values, " << fitting << " fit";
    }
  }
}

TEST(BoundarySearch, APredictionNeverCostsMoreThanTheBound) {
  for (int n = 1; n <= 40; ++n)
    for (int fitting = 0; fitting <= n; ++fitting)
      for (int p = -1; p < n; ++p) {
        const BoundaryResult r = searched(n, fitting, p).result();
        expect_exact(r, n, fitting);
        ASSERT_LE(r.trials, log2_ceil(n) + 1) << n << " values, " << fitting << " fit, predicted " << p;
      }
}

TEST(BoundarySearch, ARightPredictionTakesTwoTrials) {
  int more = 0;
  for (int n : {16, 64, 100, 512})
    for (int fitting = 0; fitting <= n; ++fitting) more += searched(n, fitting, fitting - 1).result().trials > 2;
  EXPECT_EQ(more, 0);
}

TEST(BoundarySearch, AFitAboveAnOutOfMemoryIsAViolationAndTheBoundaryStaysBelow) {
  BoundarySearch s(8);
  s.record(4, Fit::kDoesNot);
  s.record(6, Fit::kFits);
  while (const auto i = s.next()) s.record(*i, Fit::kFits);
  const BoundaryResult r = s.result();
  EXPECT_EQ(r.last_fit, 3);
  EXPECT_EQ(r.first_oom, 4);
  EXPECT_EQ(r.violations, (std::vector<std::pair<int, int>>{{4, 6}}));
}

TEST(BoundarySearch, ACrashIsNoEvidenceAndIsToldAsWhatBlocksTheSearch) {
  BoundarySearch s(8);
  while (const auto i = s.next()) s.record(*i, *i == 5 ? Fit::kUnknown : Fit::kFits);
  const BoundaryResult r = s.result();
  EXPECT_EQ(r.last_fit, 4);
  EXPECT_EQ(r.first_oom, std::nullopt);
  EXPECT_EQ(r.blocked_by, 5);
}

TEST(BoundarySearch, NearOutOfMemoryIsARegionOfItsOwn) {
  BoundarySearch s(64);
  while (const auto i = s.next()) s.record(*i, *i > 40 ? Fit::kDoesNot : *i >= 37 ? Fit::kNear : Fit::kFits);
  EXPECT_EQ(s.result().last_fit, 40);
  EXPECT_EQ(s.result().first_near, 39);  // of the values that the search tried: 31, 47, 39, 43, 41, 40
}

TEST(BoundarySearch, ASampleOfWhatWasSkippedIsTheSameForTheSameSeedAndScoresTheRule) {
  BoundarySearch s = searched(64, 20);
  const std::vector<int> sample = s.check_sample(4, 7);
  EXPECT_EQ(sample, s.check_sample(4, 7));
  ASSERT_EQ(sample.size(), 4u);
  EXPECT_EQ(std::count_if(sample.begin(), sample.end(), [](int i) { return i > 20; }), 2);
  for (const int i : sample) s.check(i, Fit::kFits);  // two of them should not have
  std::set<int> wrong;
  for (const auto& [oom, fit] : s.result().violations) wrong.insert(fit);
  EXPECT_EQ(wrong.size(), 2u);
  EXPECT_EQ(s.result().last_fit, 19) << "a check reports, it does not move the boundary";
}

TEST(BoundarySearch, StoredResultsShortenTheSearch) {
  BoundarySearch s(64);
  s.record(19, Fit::kFits);
  s.record(20, Fit::kDoesNot);
  EXPECT_EQ(s.next(), std::nullopt);
  EXPECT_EQ(s.result().trials, 2);
}

TEST(BoundarySearch, PeaksOfTwoFitsPredictTheBoundaryOfALinearCost) {
  std::vector<double> batch;
  for (int b = 1; b <= 64; ++b) batch.push_back(b);
  const auto peak = [](int b) { return 1000 + 50 * b; };
  EXPECT_EQ(predict_from_peaks(batch, {{9, peak(10)}, {19, peak(20)}}, peak(41)), 40);
  EXPECT_EQ(predict_from_peaks(batch, {{9, peak(10)}}, peak(41)), std::nullopt);
  EXPECT_EQ(predict_from_peaks(batch, {{0, 500}, {1, 500}}, 600), std::nullopt);
}

}  // namespace
}  // namespace harness
