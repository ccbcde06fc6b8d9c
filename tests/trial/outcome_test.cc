#include "harness/trial/outcome.h"

#include <gtest/gtest.h>

#include <csignal>

namespace harness {
namespace {
using Kind = Failure::Kind;

TEST(Outcome, ACrashExplainsTheCommErrorsThatCameFirst) {
  const std::vector<Failure> seen = {{Status::kCommError, 0, Kind::kReported, "[comm] rank 1 has gone"},
                                     {Status::kCommError, 2, Kind::kReported, "[comm] rank 1 has gone"},
                                     failure_of_exit(1, SIGKILL, "in repetition 2", "")};
  const Outcome o = outcome_of(seen);
  EXPECT_EQ(o.status, Status::kCrashed);
  EXPECT_EQ(o.rank, 1);
  EXPECT_EQ(o.reason, "rank 1 was killed by SIGKILL in repetition 2");
  EXPECT_TRUE(decisive(seen));
}

TEST(Outcome, OutOfMemoryExplainsTimeoutsAndCommErrors) {
  const std::vector<Failure> seen = {
      {Status::kTimeout, 0, Kind::kReported, "[comm] no arrival of rank 1"},
      {Status::kOom, 1, Kind::kReported, "[memory] too much", "root, forward, activations"}};
  const Outcome o = outcome_of(seen);
  EXPECT_EQ(o.status, Status::kOom);
  EXPECT_EQ(o.cause, "root, forward, activations");
  EXPECT_EQ(o.reason, "rank 1 ran out of memory: too much");
}

TEST(Outcome, ARankThatTheKernelEndedForWantOfMemoryRanOutOfIt) {
  const Outcome o = outcome_of({{Status::kCommError, 0, Kind::kReported, "[comm] rank 1 has gone"},
                                failure_of_exit(1, SIGKILL, "in repetition 2", "", true)});
  EXPECT_EQ(o.status, Status::kOom);
  EXPECT_EQ(o.cause, "host memory");
  EXPECT_EQ(o.reason,
            "rank 1 was killed by the kernel in repetition 2: the host, or the control group, has no more memory");
}

TEST(Outcome, AmongEqualsTheFirstIsTheCause) {
  const std::vector<Failure> seen = {{Status::kCommError, 2, Kind::kReported, "[comm] a"},
                                     {Status::kCommError, 0, Kind::kReported, "[comm] b"}};
  EXPECT_EQ(outcome_of(seen).reason, "rank 2: [comm] a");
  EXPECT_FALSE(decisive(seen));
}

TEST(Outcome, ExitCodesAndSignalsAreNamedWithTheEndOfTheLog) {
  const Failure exit = failure_of_exit(0, 3 << 8, "while starting", "one\n\ntwo\n");
  EXPECT_EQ(outcome_of({exit}).reason, "rank 0 ended with exit code 3 while starting; its log ends: one | two");
  const Failure abort = failure_of_exit(0, SIGABRT, "while starting", "what(): x\n");
  EXPECT_EQ(outcome_of({abort}).reason, "rank 0 was killed by SIGABRT while starting; its log ends: what(): x");
}

TEST(Outcome, TroubleOfTheMachineIsToldFromTroubleOfTheCase) {
  for (const int from_outside : {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGXCPU})
    EXPECT_EQ(outcome_of({failure_of_exit(0, from_outside, "", "")}).passing, "a signal from outside");
  for (const int its_own : {SIGSEGV, SIGABRT, SIGFPE, SIGILL})
    EXPECT_EQ(outcome_of({failure_of_exit(0, its_own, "", "assertion failed")}).passing, "");
  EXPECT_EQ(outcome_of({failure_of_exit(0, SIGKILL, "", "", true)}).passing, "no memory on the host");
  const std::string log = "error while loading shared libraries: libtorch.so: failed to map segment from shared object";
  EXPECT_EQ(outcome_of({failure_of_exit(0, 127 << 8, "while starting", log)}).passing, "no memory on the host");
  EXPECT_EQ(outcome_of({failure_of_exit(0, SIGABRT, "", "terminate called\n  what():  std::bad_alloc")}).passing,
            "no memory on the host");
  EXPECT_EQ(outcome_of({failure_of_exit(0, 1 << 8, "", "cannot open x: Too many open files")}).passing,
            "no descriptors left");
  EXPECT_EQ(outcome_of({failure_of_exit(0, 3 << 8, "", "no such luck")}).passing, "");
  EXPECT_EQ(outcome_of({{Status::kSkipped, 0, Kind::kReported, "[device] no GPU"}}).passing, "this machine or build");
  EXPECT_EQ(outcome_of({{Status::kOom, 0, Kind::kReported, "[rank] no more"}}).passing, "no memory on the host");
  EXPECT_EQ(outcome_of({{Status::kOom, 0, Kind::kReported, "[memory] budget", "root, forward, other"}}).passing, "");
  EXPECT_EQ(outcome_of({{Status::kConfigError, 0, Kind::kReported, "[wrap] no"}}).passing, "");
}

TEST(Outcome, SilenceNamesTheRanksAndWhatTheySaid) {
  const Outcome o = outcome_of_silence({{1, "last collective all_gather of root, forward"}, {3, ""}}, 2'000'000'000,
                                       "in repetition 1");
  EXPECT_EQ(o.status, Status::kTimeout);
  EXPECT_NE(o.reason.find("no answer in repetition 1 from ranks 1, 3; rank 1: last collective all_gather of root, "
                          "forward; rank 3: does not answer"),
            std::string::npos)
      << o.reason;
}

TEST(Outcome, LongLogsKeepTheirEnd) {
  EXPECT_EQ(last_lines(std::string(1000, 'x') + "END", 10), "...xxxxxxxEND");
  EXPECT_EQ(last_lines("\x1b[31mred\tand\x01 blue\n\n"), "[31mred and blue");
  EXPECT_EQ(last_lines(""), "");
}

TEST(Outcome, TheRankThatTransportsMissIsNamedUnlessItFailedItself) {
  const auto waited = [](int rank, const std::string& missing) {
    return Failure{Status::kTimeout, rank, Failure::Kind::kReported,
                   "[comm] rank 1 waited 3 s: " + missing + " has not arrived"};
  };
  EXPECT_EQ(missing_rank({waited(0, "rank 2"), waited(1, "rank 2")}), 2);
  EXPECT_EQ(missing_rank({waited(0, "rank 2"), waited(1, "rank 0")}), -1);
  EXPECT_EQ(missing_rank({waited(0, "rank 2"), waited(2, "rank 2")}), -1);
  EXPECT_EQ(missing_rank({waited(0, "somebody")}), -1);
}

}  // namespace
}  // namespace harness
