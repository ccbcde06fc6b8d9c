#include "harness/sweep/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "fsdp/core/errors.h"
#include "harness/sweep/cuda_support.h"
#include "harness/sweep/text.h"
#include "tests/testing/time.h"

namespace harness {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const char* kTwelve = "name: twelve\naxes: {wrap: [root, block, sublayer], batch: [1, 2], seed: [0, 1]}\ntrace: none\n";

class RunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "runner_" + std::to_string(::getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    options_.directory = directory_;
    options_.command = "shardscope sweep s.yaml";
    options_.environment = {{"host", "h"}};
  }
  void TearDown() override { fs::remove_all(directory_); }

  // A trial that says what it was asked for: batch 2 runs out of memory, sublayer with seed 1 crashes, the rest is
  // fine.
  RunCase fake() {
    return [this](const CaseSettings& c, const CasePlan& plan) {
      ++runs_;
      last_plan_ = plan;
      CaseRecord r;
      r.status = c.batch == 2                               ? Status::kOom
                 : c.wrap.text == "sublayer" && c.seed == 1 ? Status::kCrashed
                                                            : Status::kOk;
      r.reason = r.status == Status::kOk ? "" : "as planned";
      r.samples = {1000};
      r.step_ns = 1000;
      return r;
    };
  }

  std::string error_of(const std::function<void()>& act) {
    try {
      act();
    } catch (const fsdp::Error& e) {
      return e.what();
    }
    return "accepted";
  }

  std::string directory_;
  SweepOptions options_;
  CasePlan last_plan_;
  int runs_ = 0;
};

TEST_F(RunnerTest, EveryCaseIsARowAndFailuresEndNothing) {
  const SweepSpec spec = parse_spec(kTwelve, "s.yaml");
  const SweepOutcome outcome = run_sweep(spec, options_, fake());
  EXPECT_EQ(runs_, 12);
  EXPECT_FALSE(outcome.interrupted);
  EXPECT_EQ(outcome.progress.finished, 12u);
  EXPECT_EQ(outcome.progress.by_status.at(Status::kOom), 6u);
  EXPECT_EQ(outcome.progress.by_status.at(Status::kCrashed), 1u);
  EXPECT_EQ(outcome.progress.by_status.at(Status::kOk), 5u);
  Store store = Store::open(directory_);
  const auto cases = store.read_cases();
  ASSERT_EQ(cases.size(), 12u);
  EXPECT_EQ(axes_text(cases[0].axes), "wrap=root, batch=1, seed=0");
  EXPECT_EQ(cases[0].id, expand(spec)[0].id);
  EXPECT_EQ(cases[0].settings, all_settings(expand(spec)[0].settings));
  EXPECT_EQ(cases[2].reason, "as planned");
  const SweepRecord sweep = store.read_sweep();
  EXPECT_EQ(sweep.name, "twelve");
  EXPECT_EQ(sweep.spec_text, kTwelve);
  EXPECT_EQ(sweep.axes, spec.axes);
  EXPECT_EQ(sweep.command, options_.command);
}

TEST_F(RunnerTest, TheTrialGetsThePlanOfTheSpec) {
  run_sweep(parse_spec("axes: {wrap: [block]}\nrepeat: {min: 2, max: 5}\ntrace: none\ntimeout: 7s\n", "s.yaml"),
            options_, fake());
  EXPECT_EQ(last_plan_.repeat.min, 2);
  EXPECT_EQ(last_plan_.repeat.max, 5);
  EXPECT_FALSE(last_plan_.trace);
  EXPECT_EQ(last_plan_.timeout, 7'000'000'000);
  EXPECT_TRUE(fs::is_directory(last_plan_.log_dir));
  EXPECT_THAT(last_plan_.log_dir, HasSubstr("/logs/llama-block"));
}

TEST_F(RunnerTest, AFinishedSweepRunsNothingAgain) {
  const SweepSpec spec = parse_spec(kTwelve, "s.yaml");
  run_sweep(spec, options_, fake());
  const SweepOutcome again = run_sweep(spec, options_, fake());
  EXPECT_EQ(runs_, 12);
  EXPECT_EQ(again.progress.resumed, 12u);
  EXPECT_EQ(again.progress.by_status.at(Status::kOom), 6u);
}

TEST_F(RunnerTest, AKilledSweepGoesOnWithTheCaseThatWasRunning) {
  const SweepSpec spec = parse_spec(kTwelve, "s.yaml");
  const pid_t child = ::fork();
  if (child == 0) {
    run_sweep(spec, options_, [&](const CaseSettings& c, const CasePlan& plan) {
      if (runs_ == 7) ::kill(::getpid(), SIGKILL);  // in the middle of the eighth case
      return fake()(c, plan);
    });
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const SweepOutcome outcome = run_sweep(spec, options_, fake());
  EXPECT_EQ(outcome.progress.resumed, 7u);
  EXPECT_EQ(runs_, 5);
  EXPECT_EQ(Store::open(directory_).read_cases().size(), 12u);
}

TEST_F(RunnerTest, StopEndsTheSweepWithoutARowForTheInterruptedCase) {
  std::atomic<bool> stop{false};
  options_.stop = &stop;
  const SweepSpec spec = parse_spec(kTwelve, "s.yaml");
  const SweepOutcome outcome = run_sweep(spec, options_, [&](const CaseSettings& c, const CasePlan& plan) {
    CaseRecord r = fake()(c, plan);
    if (runs_ == 4) {
      stop = true;
      r.status = Status::kSkipped;
    }
    return r;
  });
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(outcome.progress.finished, 3u);
  stop = false;
  runs_ = 0;
  EXPECT_EQ(run_sweep(spec, options_, fake()).progress.finished, 12u);
  EXPECT_EQ(runs_, 9);
}

TEST_F(RunnerTest, StopAfterAFinishedCaseKeepsIt) {
  std::atomic<bool> stop{false};
  options_.stop = &stop;
  const SweepOutcome outcome =
      run_sweep(parse_spec(kTwelve, "s.yaml"), options_, [&](const CaseSettings& c, const CasePlan& plan) {
        stop = true;
        return fake()(c, plan);
      });
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(outcome.progress.finished, 1u);
}

TEST_F(RunnerTest, AnotherSpecIsRefusedWithBothNamedUnlessExtended) {
  const SweepSpec spec = parse_spec(kTwelve, "s.yaml");
  run_sweep(spec, options_, fake());
  const SweepSpec other =
      parse_spec("axes: {wrap: [root, \"blocks:2\", block], batch: [1, 2], seed: [0, 1]}\ntrace: none\n", "other.yaml");
  EXPECT_EQ(error_of([&] { run_sweep(other, options_, fake()); }),
            "[" + directory_ + "] holds results of the spec \"twelve\" (" + spec.hash() + "), not of other.yaml (" +
                other.hash() +
                "): axis wrap is [root; block; sublayer] there and [root; blocks:2; block] here; give another "
                "directory, or --extend to add to it");
  EXPECT_EQ(runs_, 12);
  options_.extend = true;
  EXPECT_EQ(run_sweep(other, options_, fake()).progress.ran, 4u);
  EXPECT_EQ(runs_, 16);
  Store store = Store::open(directory_);
  EXPECT_EQ(store.read_cases().size(), 16u);
  EXPECT_THAT(store.read_sweep().axes[0].second, testing::ElementsAre("root", "blocks:2", "block", "sublayer"));
}

TEST_F(RunnerTest, CasesThatCannotRunAreRowsWithTheirReason) {
  if (cuda_runs_here()) GTEST_SKIP() << "cuda cases run here";
  const SweepOutcome outcome = run_sweep(
      parse_spec(
          "axes: {wrap: [block, \"class:Nope\"], device: [cpu, cuda], strategy: [full_shard, \"hybrid_shard:3\"]}",
          "s.yaml"),
      options_, fake());
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(outcome.progress.by_status.at(Status::kConfigError), 3u);
  EXPECT_EQ(outcome.progress.by_status.at(Status::kSkipped), 4u);
  for (const CaseRecord& r : Store::open(directory_).read_cases())
    EXPECT_EQ(r.reason.empty(), measured(r.status)) << r.id;
}

TEST_F(RunnerTest, ASweepOfWhichNothingCanRunHereSaysSoAtOnce) {
  if (cuda_runs_here()) GTEST_SKIP() << "cuda cases run here";
  EXPECT_THROW(run_sweep(parse_spec("base: {device: cuda}", "s.yaml"), options_, fake()), fsdp::EnvironmentError);
  EXPECT_FALSE(fs::exists(directory_));
  EXPECT_THAT(
      error_of([&] { run_sweep(parse_spec("base: {seed: 1}\nexclude: [{seed: 1}]", "s.yaml"), options_, fake()); }),
      HasSubstr("leaves out every case"));
}

TEST_F(RunnerTest, WhatTheCallerRefusesIsARowAndEndsTheSweepOnlyWhenItIsAll) {
  options_.check = [](const CaseSettings& c) {
    if (c.world > 2) throw fsdp::EnvironmentError("[world] too many");
  };
  EXPECT_EQ(error_of([&] { run_sweep(parse_spec("axes: {world: [3, 4]}", "s.yaml"), options_, fake()); }),
            "[world] too many");
  EXPECT_FALSE(fs::exists(directory_));
  const SweepOutcome outcome = run_sweep(parse_spec("axes: {world: [2, 4]}", "s.yaml"), options_, fake());
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(outcome.progress.by_status.at(Status::kSkipped), 1u);
  EXPECT_EQ(Store::open(directory_).read_cases().at(1).reason, "[world] too many");
  fs::remove_all(directory_);
  runs_ = 0;
  run_sweep(parse_spec("axes: {world: [2, 4]}\nboundary: {setting: seq, from: 1, to: 2}", "s.yaml"), options_, fake());
  for (const CaseRecord& r : Store::open(directory_).read_cases())
    EXPECT_EQ(measured(r.status), r.axes.front().second == "2") << r.id;
}

TEST_F(RunnerTest, ASecondSweepOnTheSameDirectoryIsRefused) {
  const SweepSpec spec = parse_spec("axes: {wrap: [block]}", "s.yaml");
  std::string inner;
  run_sweep(spec, options_, [&](const CaseSettings& c, const CasePlan& plan) {
    inner = error_of([&] { run_sweep(spec, options_, fake()); });
    return fake()(c, plan);
  });
  EXPECT_THAT(inner, HasSubstr("is writing here"));
}

TEST_F(RunnerTest, HooksSeeEveryCaseAndTheTimeThatIsLeft) {
  std::string log;
  SweepHooks hooks;
  hooks.before_case = [&](const SweepProgress& p, const SweepCase& c) {
    log += std::to_string(p.finished) + " " + axes_text(c.axes) + "; ";
  };
  hooks.after_case = [&](const SweepProgress& p, const SweepCase&, const CaseRecord& r) {
    log += std::string(name_of(r.status)) + "; ";
    EXPECT_EQ(Store::open(directory_).statuses().size(), p.finished);
  };
  run_sweep(parse_spec("axes: {batch: [1, 2]}", "s.yaml"), options_, fake(), hooks);
  EXPECT_EQ(log, "0 batch=1; ok; 1 batch=2; oom; ");
  SweepProgress p;
  EXPECT_EQ(p.remaining(), 0);
  p.total = 10, p.finished = 4, p.ran = 2, p.spent = 600;
  EXPECT_EQ(p.remaining(), 1800);
}

TEST_F(RunnerTest, AGateBelowThePrefetchDepthIsAWarningOfTheRow) {
  run_sweep(parse_spec("base: {max_inflight: 1}", "s.yaml"), options_, fake());
  EXPECT_THAT(Store::open(directory_).read_cases()[0].warnings,
              testing::ElementsAre(HasSubstr("below the prefetch depth")));
}

TEST_F(RunnerTest, PredictionsRunSeveralAtOnceAndAreKeptInOrder) {
  const SweepSpec spec =
      parse_spec("name: p\nbase: {device: virtual}\naxes: {seed: [0, 1, 2, 3, 4, 5, 6, 7]}\n", "s.yaml");
  options_.predictions_at_once = 2;
  std::mutex mutex;
  std::condition_variable met;
  int inside = 0, most = 0;
  bool first = true;
  const RunCase together = [&](const CaseSettings&, const CasePlan&) {
    std::unique_lock lock(mutex);
    most = std::max(most, ++inside);
    met.notify_all();
    // The first to come, whichever case it is, waits for company: one at a time would end this wait by its timeout,
    // with `most` 1.
    if (std::exchange(first, false))
      met.wait_for(lock, std::chrono::nanoseconds(testing_support::kPatience), [&] { return most == 2; });
    --inside;
    CaseRecord r;
    r.status = Status::kOk;
    return r;
  };
  const SweepOutcome outcome = run_sweep(spec, options_, together);
  EXPECT_EQ(most, 2);
  EXPECT_EQ(outcome.progress.ran, 8u);
  const auto cases = Store::open(directory_).read_cases();
  ASSERT_EQ(cases.size(), 8u);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(axes_text(cases[static_cast<std::size_t>(i)].axes), "seed=" + std::to_string(i));
}

TEST_F(RunnerTest, MeasuredCasesBetweenPredictedOnesRunAlone) {
  const SweepSpec spec = parse_spec("name: m\naxes: {seed: [0, 1, 2], device: [virtual, cpu]}\n", "s.yaml");
  options_.predictions_at_once = 4;
  std::atomic<int> inside{0};
  std::atomic<bool> alone{true};
  const RunCase run = [&](const CaseSettings& c, const CasePlan&) {
    const int with_me = ++inside;
    if (c.device == DeviceKind::kCpu && with_me != 1) alone = false;
    --inside;
    CaseRecord r;
    r.status = Status::kOk;
    return r;
  };
  EXPECT_EQ(run_sweep(spec, options_, run).progress.finished, 6u);
  EXPECT_TRUE(alone);
  EXPECT_EQ(axes_text(Store::open(directory_).read_cases()[3].axes), "seed=1, device=cpu");
}

TEST_F(RunnerTest, StopAmongPredictionsKeepsWhatIsFinishedAndGoesOn) {
  const SweepSpec spec =
      parse_spec("name: p\nbase: {device: virtual}\naxes: {seed: [0, 1, 2, 3, 4, 5, 6, 7]}\n", "s.yaml");
  options_.predictions_at_once = 2;
  std::atomic<bool> stop{false};
  options_.stop = &stop;
  std::atomic<int> runs{0};
  const RunCase run = [&](const CaseSettings& c, const CasePlan&) {
    CaseRecord r;
    r.status = c.seed == 3 ? Status::kSkipped : Status::kOk;
    if (c.seed == 3) stop = true;
    ++runs;
    return r;
  };
  EXPECT_TRUE(run_sweep(spec, options_, run).interrupted);
  const std::size_t kept = Store::open(directory_).read_cases().size();
  EXPECT_LE(kept, 3u) << "the interrupted one has no row";
  stop = false;
  const RunCase rest = [](const CaseSettings&, const CasePlan&) {
    CaseRecord r;
    r.status = Status::kOk;
    return r;
  };
  const SweepOutcome outcome = run_sweep(spec, options_, rest);
  EXPECT_EQ(outcome.progress.finished, 8u);
  EXPECT_EQ(outcome.progress.resumed, kept);
}

TEST_F(RunnerTest, AnErrorAmongPredictionsEndsTheSweepAsItself) {
  const SweepSpec spec = parse_spec("name: p\nbase: {device: virtual}\naxes: {seed: [0, 1, 2, 3]}\n", "s.yaml");
  options_.predictions_at_once = 3;
  const RunCase run = [](const CaseSettings& c, const CasePlan&) {
    if (c.seed == 1) throw fsdp::EnvironmentError("[trial] no rank program; build it");
    CaseRecord r;
    r.status = Status::kOk;
    return r;
  };
  EXPECT_THROW(run_sweep(spec, options_, run), fsdp::EnvironmentError);
  EXPECT_EQ(Store::open(directory_).read_cases().size(), 1u);
}

// The file of a case is its hook's; the row comes after it.
TEST_F(RunnerTest, TheFilesOfACaseAreKeptBeforeItsRow) {
  SweepHooks hooks;
  int kept = 0;
  hooks.keep_files = [&](const CaseRecord& r) {
    ++kept;
    const auto ids = Store::open(directory_).finished_ids();
    EXPECT_EQ(std::find(ids.begin(), ids.end(), r.id), ids.end());
  };
  run_sweep(parse_spec(kTwelve, "s.yaml"), options_, fake(), hooks);
  EXPECT_EQ(kept, 12);
}

TEST_F(RunnerTest, AFileThatCannotBeKeptEndsTheSweepNotTheCaseAndIsMadeByTheNext) {
  const SweepSpec spec = parse_spec(kTwelve, "s.yaml");
  const RunCase traced = [this](const CaseSettings& c, const CasePlan& plan) {
    CaseRecord r = fake()(c, plan);
    r.spans = {{1, 0, 0, fsdp::Lane::kHost, fsdp::SpanKind::kStep, -1, fsdp::Pass::kNone, 0, 0, 10, 0, {}}};
    return r;
  };
  std::set<std::string> files;
  bool full = true;
  SweepHooks hooks;
  hooks.keep_files = [&](const CaseRecord& r) {
    if (full && files.size() == 3) throw fsdp::EnvironmentError("[traces] no room");
    files.insert(r.id);
  };
  hooks.has_files = [&](const std::string& id) { return files.count(id) != 0; };
  EXPECT_EQ(error_of([&] { run_sweep(spec, options_, traced, hooks); }), "[traces] no room");
  EXPECT_EQ(Store::open(directory_).finished_ids().size(), 4u);
  full = false;
  run_sweep(spec, options_, traced, hooks);
  EXPECT_EQ(files.size(), 12u);
  EXPECT_EQ(runs_, 12);
}

TEST_F(RunnerTest, PassingTroubleIsRunAgainAndTheRestByStatusOnly) {
  const SweepSpec spec = parse_spec(kTwelve, "s.yaml");
  bool trouble = true;
  const RunCase run = [&](const CaseSettings& c, const CasePlan& plan) {
    CaseRecord r = fake()(c, plan);
    if (trouble && c.wrap.text == "root" && c.batch == 1) {
      r.status = Status::kCrashed;
      r.environment[kPassingTrouble] = "a signal from outside";
    }
    return r;
  };
  EXPECT_EQ(run_sweep(spec, options_, run).progress.by_status.at(Status::kCrashed), 3u);
  trouble = false;
  const SweepOutcome again = run_sweep(spec, options_, run);
  EXPECT_EQ(runs_, 14);
  EXPECT_EQ(again.progress.resumed, 10u);
  EXPECT_EQ(again.progress.by_status.at(Status::kCrashed), 1u);
  options_.retry = {Status::kCrashed, Status::kOom};
  EXPECT_EQ(run_sweep(spec, options_, run).progress.ran, 7u);
}

// What a machine lacked is run as soon as it is there, and not looked at again before.
TEST_F(RunnerTest, WhatTheMachineCouldNotDoIsRunOnceItCan) {
  const SweepSpec spec = parse_spec("axes: {world: [2, 4]}\ntrace: none\n", "s.yaml");
  options_.check = [](const CaseSettings& c) {
    if (c.world > 2) throw fsdp::EnvironmentError("[world] too many");
  };
  run_sweep(spec, options_, fake());
  EXPECT_EQ(run_sweep(spec, options_, fake()).progress.resumed, 2u);
  EXPECT_EQ(runs_, 1);
  options_.check = nullptr;
  EXPECT_EQ(run_sweep(spec, options_, fake()).progress.by_status.at(Status::kOk), 2u);
  EXPECT_EQ(runs_, 2);
}

TEST_F(RunnerTest, ACaseThatNobodyLetsBeWrittenIsKeptAndMovedByTheNextCall) {
  const SweepSpec spec = parse_spec(kTwelve, "s.yaml");
  options_.patience = 50'000'000;
  std::optional<sqlite::Database> other;
  int told = 0;
  SweepHooks hooks;
  hooks.waiting = [&](fsdp::Nanos) { ++told; };
  const std::string said = error_of([&] {
    run_sweep(
        spec, options_,
        [&](const CaseSettings& c, const CasePlan& plan) {
          if (runs_ == 2) {
            other.emplace(directory_ + "/results.db", sqlite::Database::Mode::kWrite);
            other->run("BEGIN IMMEDIATE");
          }
          return fake()(c, plan);
        },
        hooks);
  });
  EXPECT_THAT(said, HasSubstr("the case that was measured is kept"));
  EXPECT_GT(told, 0);
  other.reset();
  EXPECT_EQ(Store::open(directory_).finished_ids().size(), 2u);
  const SweepOutcome outcome = run_sweep(spec, options_, fake());
  EXPECT_EQ(outcome.progress.resumed, 3u);
  EXPECT_EQ(runs_, 12);
  EXPECT_FALSE(fs::exists(directory_ + "/late"));
}

TEST_F(RunnerTest, RanksThatMakeUpNumbersSpoilTheirCaseAlone) {
  run_sweep(parse_spec(kTwelve, "s.yaml"), options_, [this](const CaseSettings& c, const CasePlan& plan) {
    CaseRecord r = fake()(c, plan);
    if (c.wrap.text == "root") r.step_ns = -7;
    return r;
  });
  for (const CaseRecord& r : Store::open(directory_).read_cases()) {
    if (r.axes.front().second != "root") continue;
    EXPECT_EQ(r.status, Status::kCrashed);
    EXPECT_THAT(r.reason, HasSubstr("step_ns is -7"));
  }
}

}  // namespace
}  // namespace harness
