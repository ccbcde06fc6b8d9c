// run_trial against a fake rank program that misbehaves on command (fake_rank.cc): every way a trial may end, and that
// nothing of it is left.
#include "harness/trial/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "tests/testing/time.h"

namespace harness {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr fsdp::Nanos kSecond = 1'000'000'000;

std::size_t open_descriptors() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

// True while the process is there and not a zombie.
bool lives(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line)) return false;
  const auto paren = line.rfind(')');
  return paren != std::string::npos && line.at(paren + 2) != 'Z' && line.at(paren + 2) != 'X';
}

template <typename Condition>
bool becomes_true(Condition condition) {
  const fsdp::Nanos deadline = fsdp::steady_now() + testing_support::kPatience;
  while (!condition()) {
    if (fsdp::steady_now() > deadline) return false;
    fsdp::sleep_until(fsdp::steady_now() + 1'000'000);
  }
  return true;
}

class TrialOutcome : public testing::Test {
 protected:
  void SetUp() override {
    log_dir_ = testing::TempDir() + "shardscope_trial_" + std::to_string(getpid());
    settings_.steps = 3;
    options_.rank_program = SHARDSCOPE_FAKE_RANK;
    options_.timeout = 4 * testing_support::kPatience;
    descriptors_ = open_descriptors();
    unsetenv("FAKE_RANK");
  }
  void TearDown() override {
    unsetenv("FAKE_RANK");
    std::filesystem::remove_all(log_dir_);
  }

  // Runs, and holds the trial to leaving nothing behind and to noticing its end itself: the timeout lies far beyond.
  CaseRecord run(const std::string& misbehaviour) {
    setenv("FAKE_RANK", misbehaviour.c_str(), 1);
    const fsdp::Nanos begin = fsdp::steady_now();
    CaseRecord record = run_trial(settings_, options_);
    EXPECT_LT(fsdp::steady_now() - begin, testing_support::kPatience);
    EXPECT_EQ(open_descriptors(), descriptors_);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
    return record;
  }

  // The pids that the ranks wrote to their logs, as soon as there are all of them.
  std::vector<pid_t> pids_in_logs() {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < settings_.world; ++rank) {
      std::ifstream in(log_dir_ + "/rank" + std::to_string(rank) + ".log");
      std::string line, word;
      pid_t pid = 0;
      if (std::getline(in, line) && line.ends_with("start") && std::istringstream(line) >> word >> pid)
        pids.push_back(pid);
    }
    return pids;
  }

  CaseSettings settings_;
  TrialOptions options_;
  std::string log_dir_;
  std::size_t descriptors_ = 0;
};

TEST_F(TrialOutcome, AGoodRunFillsTheRecord) {
  options_.repeat.max = 3;
  options_.repeat.min = 3;
  const CaseRecord r = run("");
  EXPECT_EQ(r.status, Status::kOk) << r.reason;
  EXPECT_EQ(r.reason, "");
  EXPECT_EQ(r.id, case_id(settings_));
  EXPECT_THAT(r.samples, ElementsAre(2000, 4000, 6000));  // the slower rank's
  EXPECT_EQ(r.step_ns, 4000);
  EXPECT_EQ(r.repetitions, 3);
  EXPECT_THAT(r.losses, ElementsAre(4.5, 2.5));
  EXPECT_THAT(r.grad_norms, ElementsAre(std::sqrt(18.0), 4.0));
  EXPECT_EQ(r.peak_bytes, 960);
  EXPECT_EQ(r.peak_cause, "unit of rank 1");
  EXPECT_EQ(r.units, 5);  // root and the four blocks of the default model
  EXPECT_EQ(r.collectives, 5);
  EXPECT_EQ(r.communicated_bytes, 640);
  EXPECT_EQ(r.partition_rank, 1);
  EXPECT_EQ(r.partition_step, 1);
  EXPECT_EQ(r.traced_step_ns, 111);
  EXPECT_EQ(sum(*r.partition), 111);
  EXPECT_EQ(r.overlap_pct, 25.0);  // 10 of 40
  EXPECT_EQ(r.steps.size(), 6U);
  EXPECT_EQ(r.ranks.size(), 2U);
  EXPECT_EQ(r.spans.size(), 6U);
  EXPECT_EQ(std::count(r.warnings.begin(), r.warnings.end(), "a warning of every rank"), 1);
  EXPECT_EQ(r.environment.at("libtorch"), "none");
  EXPECT_FALSE(r.emulated);
  EXPECT_LE(r.started_at, r.finished_at);
  EXPECT_GT(r.started_at, 0);
}

TEST_F(TrialOutcome, WithoutTracingThereIsNoPartition) {
  options_.trace = false;
  const CaseRecord r = run("");
  EXPECT_EQ(r.status, Status::kOk) << r.reason;
  EXPECT_FALSE(r.partition);
  EXPECT_THAT(r.samples, ElementsAre(2000));
}

TEST_F(TrialOutcome, RepetitionEndsWhenItsTimeIsSpent) {
  options_.repeat = {2, 100, 0.02, 3 * (2000 + 4000 + 6000)};  // of the first three repetitions, on the slower rank
  const CaseRecord r = run("");
  EXPECT_EQ(r.status, Status::kOk) << r.reason;
  EXPECT_THAT(r.samples, ElementsAre(2000, 4000, 6000));
  EXPECT_EQ(r.stopped_by, "time");
}

TEST_F(TrialOutcome, ALogDirectoryHoldsWhatEachRankSaid) {
  options_.log_dir = log_dir_;
  EXPECT_EQ(run("").status, Status::kOk);
  EXPECT_EQ(pids_in_logs().size(), 2U);
}

TEST_F(TrialOutcome, AKilledRankIsNamedWithItsSignal) {
  const CaseRecord r = run("1 kill repetition1");
  EXPECT_EQ(r.status, Status::kCrashed);
  EXPECT_EQ(r.reason, "rank 1 was killed by SIGKILL in the warm-up or the first repetition");
  EXPECT_FALSE(r.step_ns);
}

TEST_F(TrialOutcome, AKilledRankIsTheCauseThoughItsPeerComplainedFirst) {
  const CaseRecord r = run("0 comm_error repetition1;1 kill_later repetition1");
  EXPECT_EQ(r.status, Status::kCrashed);
  EXPECT_THAT(r.reason, HasSubstr("rank 1 was killed by SIGKILL"));
}

TEST_F(TrialOutcome, AKilledRankEndsPeersThatIgnoreSigterm) {
  const CaseRecord r = run("0 mute repetition1;1 kill repetition1");
  EXPECT_EQ(r.status, Status::kCrashed);
  EXPECT_THAT(r.reason, HasSubstr("rank 1 was killed by SIGKILL"));
}

TEST_F(TrialOutcome, AnAbortIsNamedWithTheEndOfTheLog) {
  const CaseRecord r = run("0 abort trace");
  EXPECT_EQ(r.status, Status::kCrashed);
  EXPECT_THAT(r.reason, HasSubstr("rank 0 was killed by SIGABRT in the traced repetition"));
  EXPECT_THAT(r.reason, HasSubstr("terminate called after nothing"));
}

TEST_F(TrialOutcome, AnExitWithoutAResultIsACrash) {
  const CaseRecord r = run("1 exit start");
  EXPECT_EQ(r.status, Status::kCrashed);
  EXPECT_THAT(r.reason, HasSubstr("rank 1 ended with exit code 3 while starting"));
  EXPECT_THAT(r.reason, HasSubstr("no such luck"));
}

TEST_F(TrialOutcome, OutOfMemoryKeepsItsCause) {
  const CaseRecord r = run("1 oom repetition1;0 comm_error repetition1");
  EXPECT_EQ(r.status, Status::kOom);
  EXPECT_EQ(r.peak_cause, "root, forward, unsharded parameters");
  EXPECT_THAT(r.reason, HasSubstr("rank 1 ran out of memory"));
  EXPECT_THAT(r.reason, HasSubstr("64 B"));
  EXPECT_GT(r.largest_unit_bytes, 0);  // what did not fit is in the row
  EXPECT_EQ(r.peak_bytes, 4096);       // and what the rank had by then
}

TEST_F(TrialOutcome, ACommErrorOfAllIsACommError) {
  const CaseRecord r = run("0 comm_error repetition1;1 comm_error repetition1");
  EXPECT_EQ(r.status, Status::kCommError);
  EXPECT_THAT(r.reason, HasSubstr("[comm] rank 1 has gone"));
  EXPECT_THAT(r.reason, HasSubstr("last collective all_gather of root, forward"));
}

TEST_F(TrialOutcome, ATimeoutOfARankExplainsTheCommErrorOfItsPeer) {
  const CaseRecord r = run("1 comm_error repetition1;0 timeout repetition1");
  EXPECT_EQ(r.status, Status::kTimeout);
  EXPECT_THAT(r.reason, HasSubstr("no arrival of rank 1"));
}

TEST_F(TrialOutcome, SilentRanksAreNamedWithTheirLastCollective) {
  CaseRecord r;
  for (const fsdp::Nanos timeout :
       {kSecond / 2, 5 * kSecond, 30 * kSecond}) {  // a busy machine may need longer to start
    options_.timeout = timeout;
    r = run("0 mute repetition1;1 hang repetition1");
    if (r.reason.find("while starting") == std::string::npos) break;
  }
  EXPECT_EQ(r.status, Status::kTimeout);
  EXPECT_THAT(r.reason, HasSubstr("from ranks 0, 1; rank 0: does not answer; rank 1: last collective reduce_scatter of "
                                  "model.layers.1, backward"));
}

TEST_F(TrialOutcome, ARankThatNeverStartsUpIsATimeout) {
  options_.timeout = kSecond / 2;
  const CaseRecord r = run("1 hang start");
  EXPECT_EQ(r.status, Status::kTimeout);
  EXPECT_THAT(r.reason, HasSubstr("no answer while starting from rank 1"));
}

TEST_F(TrialOutcome, ARankThatDoesNothingWhileStartingIsNamedWithinItsTimeLimit) {
  settings_.step_timeout = 300'000'000;
  for (const char* how : {"hang", "mute"}) {
    const CaseRecord r = run(std::string("1 ") + how + " start");
    EXPECT_EQ(r.status, Status::kTimeout);
    EXPECT_THAT(r.reason, HasSubstr("rank 1")) << how;
    EXPECT_THAT(r.reason, Not(HasSubstr("rank 0"))) << how;
    EXPECT_THAT(r.reason, HasSubstr("while starting")) << how;
    EXPECT_THAT(r.reason, HasSubstr("longer than step_timeout 300ms")) << how;
  }
}

TEST_F(TrialOutcome, AStoppedRankIsNamedThoughItsPeerComplains) {
  settings_.step_timeout = 1'000'000'000;
  const CaseRecord r = run("1 stop repetition1;0 timeout_later repetition1");
  EXPECT_EQ(r.status, Status::kTimeout);
  EXPECT_THAT(r.reason, HasSubstr("rank 1 does not answer in the warm-up or the first repetition: its process is "
                                  "stopped (SIGSTOP)"));
  EXPECT_THAT(r.reason, HasSubstr("; rank 0: [comm] no arrival of a rank"));
}

TEST_F(TrialOutcome, ASleepingRankAmongBusyOnesIsNamed) {
  settings_.world = 3;
  settings_.step_timeout = 500'000'000;
  const CaseRecord r = run("0 busy repetition1;1 hang repetition1;2 busy repetition1");
  EXPECT_EQ(r.status, Status::kTimeout);
  EXPECT_THAT(r.reason, HasSubstr("rank 1 does nothing in the warm-up"));
  EXPECT_THAT(r.reason, Not(HasSubstr("rank 2")));
}

TEST_F(TrialOutcome, AClosedSocketOfALivingRankIsACrash) {
  const CaseRecord r = run("0 close repetition1");
  EXPECT_EQ(r.status, Status::kCrashed);
  EXPECT_THAT(r.reason, HasSubstr("rank 0 closed its connection"));
}

TEST_F(TrialOutcome, GarbageIsACrashThatShowsIt) {
  const CaseRecord r = run("0 garbage repetition1");
  EXPECT_EQ(r.status, Status::kCrashed);
  EXPECT_THAT(r.reason, HasSubstr("cannot be read"));
}

TEST_F(TrialOutcome, AnInterruptEndsTheTrialAsSkipped) {
  const std::atomic<bool> stop = true;
  options_.stop = &stop;
  const CaseRecord r = run("0 hang start;1 hang start");
  EXPECT_EQ(r.status, Status::kSkipped);
  EXPECT_EQ(r.reason, "interrupted");
}

TEST_F(TrialOutcome, SettingsThatContradictEachOtherAreAConfigErrorWithoutAnyProcess) {
  settings_.collectives = CollectivesKind::kNccl;
  options_.rank_program = "/nonexistent";
  const CaseRecord r = run("");
  EXPECT_EQ(r.status, Status::kConfigError);
  EXPECT_THAT(r.reason, HasSubstr("nccl"));
}

TEST_F(TrialOutcome, AWrapThatMatchesNothingIsAConfigErrorWithoutAnyProcess) {
  apply_setting(settings_, "wrap", "class:NoSuchLayer");
  options_.rank_program = "/nonexistent";
  const CaseRecord r = run("");
  EXPECT_EQ(r.status, Status::kConfigError);
  EXPECT_THAT(r.reason, HasSubstr("NoSuchLayer"));
}

TEST_F(TrialOutcome, TrialsOfTwoThreadsDoNotMeet) {
  setenv("FAKE_RANK", "", 1);
  CaseSettings other = settings_;
  other.world = 3;
  CaseRecord first, second;
  std::thread thread([&] { first = run_trial(other, options_); });
  second = run_trial(settings_, options_);
  thread.join();
  EXPECT_EQ(first.status, Status::kOk) << first.reason;
  EXPECT_EQ(second.status, Status::kOk) << second.reason;
  EXPECT_THAT(first.samples, ElementsAre(3000));
  EXPECT_THAT(second.samples, ElementsAre(2000));
  EXPECT_EQ(open_descriptors(), descriptors_);
}

TEST_F(TrialOutcome, AMissingRankProgramIsAnErrorOfTheEnvironment) {
  options_.rank_program = "/nonexistent/shardscope-rank";
  EXPECT_THROW(run(""), fsdp::EnvironmentError);
  EXPECT_EQ(open_descriptors(), descriptors_);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(TrialOutcome, ManyRanksAtOnce) {
  settings_.world = 8;
  const CaseRecord r = run("5 exit trace");
  EXPECT_EQ(r.status, Status::kCrashed);
  EXPECT_THAT(r.reason, HasSubstr("rank 5 ended with exit code 3"));
}

TEST_F(TrialOutcome, KillingTheLauncherLeavesNoRank) {
  options_.log_dir = log_dir_;
  setenv("FAKE_RANK", "0 mute start;1 mute start", 1);  // they look neither at their socket nor at SIGTERM
  const pid_t launcher = fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) {
    run_trial(settings_, options_);
    _exit(0);
  }
  ASSERT_TRUE(becomes_true([&] { return pids_in_logs().size() == 2; }));
  const std::vector<pid_t> ranks = pids_in_logs();
  for (const pid_t pid : ranks) EXPECT_TRUE(lives(pid));
  kill(launcher, SIGKILL);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  for (const pid_t pid : ranks) EXPECT_TRUE(becomes_true([&] { return !lives(pid); })) << pid;
}

}  // namespace
}  // namespace harness
