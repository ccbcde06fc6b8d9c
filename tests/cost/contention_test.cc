#include "harness/cost/contention.h"

#include <gtest/gtest.h>

namespace harness {
namespace {

// A stretch of ten equal operators from `begin`; its length with contention.
fsdp::Nanos stretch(Contention& c, fsdp::Nanos begin, fsdp::Nanos cost) {
  fsdp::Nanos at = begin;
  for (int i = 0; i < 10; ++i) at += cost + c.extra(at, cost);
  return at - begin;
}

TEST(Contention, AddsItsShareOfTheCommunicationBesideTheComputation) {
  Contention full(1.0), half(0.5), none(0.0);
  for (Contention* c : {&full, &half, &none}) c->communication(0, 400);
  EXPECT_EQ(stretch(full, 0, 100), 1000 + 400);
  EXPECT_EQ(stretch(half, 0, 100), 1000 + 200);
  EXPECT_EQ(stretch(none, 0, 100), 1000);
}

TEST(Contention, AtMostDoublesTheComputation) {
  Contention c(1.0);
  c.communication(0, 100'000);
  EXPECT_EQ(stretch(c, 0, 100), 2000);
}

TEST(Contention, CommunicationThatWasWaitedForIsNotPaidTwice) {
  Contention c(1.0);
  c.communication(0, 500);
  EXPECT_EQ(stretch(c, 500, 100), 1000);
  c.communication(1500, 1600);  // in the gap before the next stretch
  EXPECT_EQ(stretch(c, 2000, 100), 1000);
}

TEST(Contention, AGapDoesNotWipeWhatIsOwed) {
  Contention c(1.0);
  c.communication(0, 1000);
  EXPECT_EQ(c.extra(0, 100), 100);     // until 200, all of it beside communication
  EXPECT_EQ(c.extra(250, 100), 100);   // of 100 owed and 100 beside it, as much as it is long
  EXPECT_EQ(c.extra(1500, 100), 100);  // beside nothing: what was owed
  EXPECT_EQ(c.extra(1700, 100), 100);
  EXPECT_EQ(c.extra(1900, 100), 0) << "all is paid";
}

TEST(Contention, CommunicationIssuedLateIsOwedForWhatItRanBeside) {
  Contention early(0.5), late(0.5);
  early.communication(0, 400);
  fsdp::Nanos first = 1000 + early.extra(0, 1000), second = 1000 + late.extra(0, 1000);
  late.communication(0, 400);
  first += 1000 + early.extra(first, 1000);
  second += 1000 + late.extra(second, 1000);
  EXPECT_EQ(first, 2200);
  EXPECT_EQ(second, first);
}

TEST(Contention, ASlowNetworkKeepsTheDeviceLessBusy) {
  Contention c(1.0);
  c.communication(0, 1000, 0.25);
  EXPECT_NEAR(static_cast<double>(stretch(c, 0, 100)), 1000 + 250, 5) << "each operator is rounded to a nanosecond";
}

TEST(Contention, TwoLanesAtOnceCountOnce) {
  Contention c(1.0);
  c.communication(0, 300);
  c.communication(100, 400);
  EXPECT_EQ(stretch(c, 0, 100), 1000 + 400);
}

}  // namespace
}  // namespace harness
