// run_trial with the real shardscope-rank: the whole path from settings to a record, and how real ranks die.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fsdp/core/clock.h"
#include "harness/trial/trial.h"
#include "tests/testing/test_data.h"
#include "tests/testing/time.h"

namespace harness {
namespace {
using testing::HasSubstr;

constexpr fsdp::Nanos kSecond = 1'000'000'000;

struct Golden {
  CaseSettings settings;
  std::vector<double> losses, grad_norms;
};

Golden golden(const std::string& name) {
  std::ifstream in(testing_support::test_data() + "/goldens/" + name + ".json");
  const nlohmann::json j = nlohmann::json::parse(in);
  Golden g;
  const auto flags = j.at("shardscope_flags").get<std::vector<std::string>>();
  for (std::size_t i = 0; i + 1 < flags.size(); i += 2) apply_setting(g.settings, flags[i].substr(2), flags[i + 1]);
  g.losses = j.at("losses").get<std::vector<double>>();
  g.grad_norms = j.at("grad_norms").get<std::vector<double>>();
  return g;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], relative * std::abs(want[i])) << "step " << i;
}

TrialOptions real_ranks() {
  TrialOptions options;
  options.rank_program = SHARDSCOPE_RANK_PROGRAM;
  options.timeout = 60 * kSecond;
  return options;
}

// True while the process is there and not a zombie.
bool lives(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line)) return false;
  const auto paren = line.rfind(')');
  return paren != std::string::npos && line.at(paren + 2) != 'Z' && line.at(paren + 2) != 'X';
}

void expect_nothing_left() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

class RankGolden : public testing::TestWithParam<const char*> {};

TEST_P(RankGolden, LossesAndNormsAreThoseOfPyTorch) {
  const Golden g = golden(GetParam());
  const CaseRecord r = run_trial(g.settings, real_ranks());
  ASSERT_EQ(r.status, Status::kOk) << r.reason;
  expect_near(r.losses, g.losses, 1e-5);
  expect_near(r.grad_norms, g.grad_norms, 1e-5);
  ASSERT_TRUE(r.partition);
  EXPECT_EQ(sum(*r.partition), *r.traced_step_ns);
  EXPECT_EQ(r.steps.size(), static_cast<std::size_t>(g.settings.world * g.settings.steps));
  for (const StepRow& s : r.steps) EXPECT_EQ(sum(s.classes), s.length);
  EXPECT_GT(*r.step_ns, 0);
  EXPECT_GT(*r.peak_bytes, 0);
  EXPECT_FALSE(r.peak_cause.empty());
  EXPECT_EQ(r.units, 3);  // root and two blocks
  EXPECT_EQ(r.overlap_pct.has_value(), g.settings.world > 1);
  EXPECT_EQ(r.environment.count("libtorch"), 1U);
  EXPECT_EQ(r.environment.at("cpu_threads"), "1");
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Tiny, RankGolden, testing::Values("tiny_w1", "tiny_w2", "tiny_w3"));

TEST(RankGolden, ATinyRunTakesLittleTime) {
  const Golden g = golden("tiny_w2");
  const fsdp::Nanos begin = testing_support::processor_time(RUSAGE_CHILDREN);
  EXPECT_EQ(run_trial(g.settings, real_ranks()).status, Status::kOk);
  const double seconds = static_cast<double>(testing_support::processor_time(RUSAGE_CHILDREN) - begin) / kSecond;
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 3) << "of the processor, both ranks, start-up included; 0.5 s here";
}

TEST(RankGolden, GlooGivesTheSameNumbers) {
  Golden g = golden("tiny_w2");
  g.settings.collectives = CollectivesKind::kGloo;
  const CaseRecord r = run_trial(g.settings, real_ranks());
  ASSERT_EQ(r.status, Status::kOk) << r.reason;
  expect_near(r.losses, g.losses, 1e-5);
  expect_nothing_left();
}

TEST(RankGolden, AWireIsMarkedAsEmulated) {
  Golden g = golden("tiny_w2");
  g.settings.wire = fsdp::Wire{2'000'000, 10e9};
  g.settings.steps = 2;
  const CaseRecord r = run_trial(g.settings, real_ranks());
  ASSERT_EQ(r.status, Status::kOk) << r.reason;
  EXPECT_TRUE(r.emulated);
  EXPECT_GT(*r.step_ns, 2'000'000 * *r.collectives / 2);  // one lane: latencies add up, but for what overlaps compute
}

// Noticed by the connection that closes, not by the 60 s that a step may take.
TEST(RankFailure, ARankKilledInMidStepIsNamedLongBeforeTheStepTimeout) {
  for (const auto collectives : {CollectivesKind::kLocal, CollectivesKind::kGloo}) {
    CaseSettings c = golden("tiny_w2").settings;
    c.collectives = collectives;
    c.steps = 200;
    TrialOptions options = real_ranks();
    options.repeat.min = options.repeat.max = 1'000'000;
    fsdp::Nanos killed = 0;
    options.progress = [&](const TrialProgress& p) {
      if (p.repetitions != 1 || killed != 0) return;
      killed = fsdp::steady_now();
      kill(p.pids.at(1), SIGKILL);
    };
    const CaseRecord r = run_trial(c, options);
    EXPECT_LT(fsdp::steady_now() - killed, c.step_timeout / 2);
    EXPECT_EQ(r.status, Status::kCrashed);
    EXPECT_EQ(r.reason, "rank 1 was killed by SIGKILL in repetition 2");
    expect_nothing_left();
  }
}

TEST(RankFailure, PassingTheMemoryBudgetIsOutOfMemoryWithItsCause) {
  CaseSettings c = golden("tiny_w2").settings;
  apply_setting(c, "memory_budget", "1MB");
  const CaseRecord r = run_trial(c, real_ranks());
  EXPECT_EQ(r.status, Status::kOom);
  EXPECT_THAT(r.reason, HasSubstr("ran out of memory"));
  EXPECT_THAT(r.peak_cause, testing::ContainsRegex(", (forward|backward|optimizer|outside a pass), "));
  expect_nothing_left();
}

TEST(RankFailure, ATrialThatTakesTooLongNamesTheRanksAndTheirLastCollectives) {
  CaseSettings c = golden("tiny_w2").settings;
  c.steps = 1'000'000;
  TrialOptions options = real_ranks();
  CaseRecord r;
  for (const fsdp::Nanos timeout :
       {3 * kSecond, 30 * kSecond}) {  // a busy machine may need the longer one to get to a step
    options.timeout = timeout;
    r = run_trial(c, options);
    if (r.reason.find("while starting") == std::string::npos) break;
  }
  EXPECT_EQ(r.status, Status::kTimeout);
  EXPECT_THAT(r.reason, HasSubstr("from ranks 0, 1; rank 0: repetition 1, step "));
  EXPECT_THAT(r.reason, HasSubstr("; last collective "));
  expect_nothing_left();
}

TEST(RankFailure, ARankThatStandsStillEndsTheTrialByTheStepTimeout) {
  CaseSettings c = golden("tiny_w2").settings;
  c.steps = 200;
  apply_setting(c, "step_timeout", "5s");  // no load makes a step of this model so long
  TrialOptions options = real_ranks();
  options.repeat.min = options.repeat.max = 1'000'000;
  options.progress = [&](const TrialProgress& p) {
    if (p.repetitions == 1) kill(p.pids.at(1), SIGSTOP);
  };
  const CaseRecord r = run_trial(c, options);
  EXPECT_EQ(r.status, Status::kTimeout);
  EXPECT_THAT(r.reason, HasSubstr("rank 1"));
  expect_nothing_left();
}

TEST(RankFailure, AnInterruptLeavesNothing) {
  CaseSettings c = golden("tiny_w2").settings;
  c.steps = 1'000'000;
  std::atomic<bool> stop = false;
  TrialOptions options = real_ranks();
  options.stop = &stop;
  options.progress = [&](const TrialProgress& p) { stop = p.doing != "while starting"; };
  const CaseRecord r = run_trial(c, options);
  EXPECT_EQ(r.status, Status::kSkipped);
  EXPECT_EQ(r.reason, "interrupted");
  expect_nothing_left();
}

TEST(RankFailure, KillingTheLauncherLeavesNoRank) {
  CaseSettings c = golden("tiny_w2").settings;
  c.steps = 1'000'000;
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const pid_t launcher = fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) {
    TrialOptions options = real_ranks();
    options.progress = [&](const TrialProgress& p) {
      if (p.doing != "while starting" && write(pipe_ends[1], p.pids.data(), 2 * sizeof(pid_t)) < 0) _exit(1);
    };
    run_trial(c, options);
    _exit(0);
  }
  pid_t pids[2];
  ASSERT_EQ(read(pipe_ends[0], pids, sizeof pids), static_cast<ssize_t>(sizeof pids));
  for (const pid_t pid : pids) EXPECT_EQ(kill(pid, 0), 0);
  kill(launcher, SIGKILL);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  const fsdp::Nanos deadline = fsdp::steady_now() + testing_support::kPatience;
  for (const pid_t pid : pids) {
    while (lives(pid) && fsdp::steady_now() < deadline) fsdp::sleep_until(fsdp::steady_now() + 1'000'000);
    EXPECT_FALSE(lives(pid)) << pid;
  }
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace harness
