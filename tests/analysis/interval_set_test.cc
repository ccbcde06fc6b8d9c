#include "harness/analysis/interval_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace harness {
namespace {

using fsdp::Nanos;

constexpr Nanos kRange = 24;

std::set<Nanos> points(const std::vector<Interval>& any) {
  std::set<Nanos> out;
  for (const Interval& i : any) {
    for (Nanos t = i.begin; t < i.end; ++t) out.insert(t);
  }
  return out;
}

std::set<Nanos> points(const IntervalSet& s) { return points(s.intervals()); }

std::vector<Interval> random_intervals(std::mt19937& rng) {
  std::vector<Interval> out(rng() % 6);
  for (Interval& i : out) {
    i.begin = static_cast<Nanos>(rng() % kRange);
    i.end = i.begin + static_cast<Nanos>(rng() % 8) - 1;  // reversed, empty, touching and nested ones come up
  }
  return out;
}

void expect_canonical(const IntervalSet& s) {
  for (std::size_t i = 0; i < s.intervals().size(); ++i) {
    EXPECT_LT(s.intervals()[i].begin, s.intervals()[i].end);
    EXPECT_TRUE(i == 0 || s.intervals()[i - 1].end < s.intervals()[i].begin);
  }
}

TEST(IntervalSet, AgreesWithBruteForceOnSmallSets) {
  std::mt19937 rng(20261129);
  for (int round = 0; round < 20000; ++round) {
    const std::vector<Interval> x = random_intervals(rng), y = random_intervals(rng);
    const IntervalSet a(x), b(y);
    const std::set<Nanos> p = points(x), q = points(y);
    std::set<Nanos> both, either = p, only;
    for (Nanos t : p) (q.contains(t) ? both : only).insert(t);
    either.insert(q.begin(), q.end());
    ASSERT_EQ(points(a), p);
    ASSERT_EQ(points(a | b), either);
    ASSERT_EQ(points(a & b), both);
    ASSERT_EQ(points(a - b), only);
    ASSERT_EQ(a.length(), static_cast<Nanos>(p.size()));
    for (const IntervalSet& s : {a, a | b, a & b, a - b}) expect_canonical(s);
    const Nanos lo = static_cast<Nanos>(rng() % kRange), hi = static_cast<Nanos>(rng() % kRange);
    Nanos inside = 0;
    for (Nanos t : p) inside += lo <= t && t < hi;
    ASSERT_EQ(a.clipped(lo, hi).length(), inside);
    ASSERT_EQ(a.length_within(lo, hi), inside);
    for (Nanos t = -1; t <= kRange + 8; ++t) ASSERT_EQ(a.contains(t), p.contains(t));
  }
}

TEST(IntervalSet, TouchingIntervalsMergeAndEmptyOnesVanish) {
  const IntervalSet s({{5, 5}, {2, 4}, {4, 6}, {9, 7}});
  EXPECT_EQ(s.intervals(), (std::vector<Interval>{{2, 6}}));
  EXPECT_TRUE(IntervalSet({{3, 3}}).empty());
}

// V43: two kernels [0,10), [8,12) in one stream.
TEST(IntervalSet, SameStreamOverlapCountsOnce) { EXPECT_EQ(IntervalSet({{0, 10}, {8, 12}}).length(), 12); }

}  // namespace
}  // namespace harness
