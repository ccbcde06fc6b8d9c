#include "harness/cost/caching_allocator.h"

#include <gtest/gtest.h>

#include <random>

namespace harness {
namespace {

constexpr fsdp::Bytes kKiB = 1 << 10, kMiB = 1 << 20;
constexpr auto kA = fsdp::MemoryCategory::kActivations;
constexpr auto kU = fsdp::MemoryCategory::kUnsharded;

TEST(CachingAllocator, SmallRequestsShareTwoMebibytesInPiecesOf512Bytes) {
  CachingAllocator a(0);
  a.added(1, kA);
  EXPECT_EQ(a.reserved(), 2 * kMiB);
  EXPECT_EQ(a.peak().rounding(), 511);
  for (int i = 0; i < 4095; ++i) a.added(512, kA);
  EXPECT_EQ(a.reserved(), 2 * kMiB);
  a.added(1, kA);
  EXPECT_EQ(a.reserved(), 4 * kMiB);
}

TEST(CachingAllocator, SegmentsFollowTheSize) {
  const auto reserved = [](fsdp::Bytes n) {
    CachingAllocator a(0);
    a.added(n, kA);
    return a.reserved();
  };
  EXPECT_EQ(reserved(kMiB), 2 * kMiB);
  EXPECT_EQ(reserved(kMiB + 1), 20 * kMiB);
  EXPECT_EQ(reserved(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(reserved(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(reserved(21 * kMiB + 1), 22 * kMiB);
}

TEST(CachingAllocator, AFreedSegmentIsUsedAgainAndCut) {
  CachingAllocator a(0);
  a.added(40 * kMiB, kU);
  a.removed(40 * kMiB, kU);
  a.added(15 * kMiB, kA);
  a.added(25 * kMiB, kA);
  EXPECT_EQ(a.reserved(), 40 * kMiB);
  a.removed(15 * kMiB, kA);
  a.removed(25 * kMiB, kA);
  a.added(40 * kMiB, kU);  // the pieces were joined
  EXPECT_EQ(a.reserved(), 40 * kMiB);
}

TEST(CachingAllocator, ARestOfUpToOneMebibyteOfALargeBlockIsNotCutOff) {
  CachingAllocator a(0);
  a.added(12 * kMiB, kA);
  a.removed(12 * kMiB, kA);
  a.added(11 * kMiB, kA);
  a.added(kMiB + 1, kA);  // would fit into the rest, were it one
  EXPECT_EQ(a.reserved(), 12 * kMiB + 20 * kMiB);
}

TEST(CachingAllocator, TheSmallestBlockThatHoldsItIsTaken) {
  CachingAllocator a(0);
  a.added(30 * kMiB, kA);
  a.added(20 * kMiB, kU);
  a.removed(30 * kMiB, kA);
  a.removed(20 * kMiB, kU);
  a.added(20 * kMiB, kA);
  a.added(30 * kMiB, kA);
  EXPECT_EQ(a.reserved(), 50 * kMiB);
}

TEST(CachingAllocator, WhatTheDeviceRefusesFreesTheCacheAndIsAskedAgain) {
  CachingAllocator a(40 * kMiB);
  a.added(20 * kMiB, kA);
  a.removed(20 * kMiB, kA);
  a.added(30 * kMiB, kA);
  EXPECT_EQ(a.reserved(), 30 * kMiB);
  const auto refusals = a.take_refusals();
  EXPECT_EQ(refusals.retries, 1);
  EXPECT_EQ(refusals.failures, 0);
  EXPECT_EQ(a.take_refusals().retries, 0);
}

TEST(CachingAllocator, PiecesThatNobodyCanUseAreAFailureBelowTheLimit) {
  CachingAllocator a(40 * kMiB);
  a.added(20 * kMiB, kA);
  a.removed(20 * kMiB, kA);
  a.added(11 * kMiB, kA);  // in the first segment: 9 MiB of it are free, but cut off
  a.added(20 * kMiB, kU);
  a.added(10 * kMiB, kU);
  EXPECT_EQ(a.take_refusals().failures, 1);
}

TEST(CachingAllocator, ReservedIsRoundedPlusCachedWhateverHappens) {
  std::mt19937 random(7);
  CachingAllocator a(0);
  std::vector<fsdp::Bytes> live;
  fsdp::Bytes sum = 0;
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 2) {
      const fsdp::Bytes n = 1 + static_cast<fsdp::Bytes>(random() % (i % 3 ? 64 * kKiB : 32 * kMiB));
      live.push_back(n), sum += n;
      a.added(n, kA);
    } else {
      std::swap(live[random() % live.size()], live.back());
      sum -= live.back();
      a.removed(live.back(), kA);
      live.pop_back();
    }
    ASSERT_GE(a.reserved(), sum);
    ASSERT_GE(a.peak().rounding(), 0);
    ASSERT_GE(a.peak().cached(), 0);
  }
  for (const fsdp::Bytes n : live) a.removed(n, kA);
  const fsdp::Bytes kept = a.reserved();
  a.added(1, kA);
  EXPECT_EQ(a.reserved(), kept) << "everything that was freed can be used";
}

}  // namespace
}  // namespace harness
