#include "harness/sweep/boundary_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>

#include "fsdp/core/errors.h"
#include "harness/sweep/interleave.h"
#include "harness/sweep/runner.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class BoundaryRunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.directory = testing::TempDir() + "boundary_" + std::to_string(::getpid()) + "_" +
                         testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(options_.directory);
  }
  void TearDown() override { fs::remove_all(options_.directory); }

  // Memory grows with the batch; prefetch keeps one more unit.
  RunCase fake() {
    return [this](const CaseSettings& c, const CasePlan&) {
      ++runs_;
      CaseRecord r;
      const fsdp::Bytes budget = c.memory_budget, peak = 1'000 + 50 * c.batch + 200 * c.forward_prefetch;
      r.status = peak > budget ? Status::kOom : 20 * peak >= 19 * budget ? Status::kNearOom : Status::kOk;
      if (measured(r.status)) r.peak_bytes = peak;
      r.samples = {1000};
      r.step_ns = 1000;
      return r;
    };
  }
  std::map<std::string, CaseRecord> rows() {
    std::map<std::string, CaseRecord> out;
    for (CaseRecord& r : Store::open(options_.directory).read_cases()) out[axes_text(r.axes)] = r;
    return out;
  }

  SweepOptions options_;
  int runs_ = 0;
};

const char* kSpec =
    "base: {memory_budget: 3000B}\naxes: {forward_prefetch: [0, 1]}\nboundary: {setting: batch, from: 1, to: 64}\n";

TEST_F(BoundaryRunnerTest, TheBoundaryEqualsExhaustiveSearchForEachPointOfTheOtherAxes) {
  run_sweep(parse_spec(kSpec, "s.yaml"), options_, fake());
  const auto found = rows();
  EXPECT_EQ(found.size(), 128u);  // every value is a row
  EXPECT_EQ(found.at("forward_prefetch=0, batch=40").status, Status::kNearOom);
  EXPECT_EQ(found.at("forward_prefetch=0, batch=41").status, Status::kOom);
  EXPECT_EQ(found.at("forward_prefetch=1, batch=36").status, Status::kNearOom);
  EXPECT_EQ(found.at("forward_prefetch=1, batch=37").status, Status::kOom);
  EXPECT_LE(runs_, 2 * (7 + 1)) << "two searches of at most 7 trials, and a check each";
}

TEST_F(BoundaryRunnerTest, WhatWasSkippedSaysWhatDominatesIt) {
  SweepSpec spec = parse_spec(kSpec, "s.yaml");
  spec.boundary->check = 0;
  run_sweep(spec, options_, fake());
  const auto found = rows();
  EXPECT_EQ(found.at("forward_prefetch=0, batch=63").status, Status::kSkipped);
  EXPECT_EQ(found.at("forward_prefetch=0, batch=63").reason, "dominated by batch=41, which ran out of memory");
  EXPECT_EQ(found.at("forward_prefetch=0, batch=2").reason, "dominated by batch=40, which fits");
}

TEST_F(BoundaryRunnerTest, AFinishedSearchIsNotRunAgain) {
  const SweepSpec spec = parse_spec(kSpec, "s.yaml");
  run_sweep(spec, options_, fake());
  const int before = runs_;
  const SweepOutcome again = run_sweep(spec, options_, fake());
  EXPECT_EQ(runs_, before);
  EXPECT_EQ(again.progress.finished, 128u);
  EXPECT_EQ(again.progress.ran, 0u);
}

TEST_F(BoundaryRunnerTest, AnInterruptedSearchGoesOnWhereItWas) {
  const SweepSpec spec = parse_spec(kSpec, "s.yaml");
  run_sweep(spec, options_, fake());
  const int whole = runs_;
  fs::remove_all(options_.directory);
  runs_ = 0;
  std::atomic<bool> stop{false};
  options_.stop = &stop;
  const RunCase inner = fake();
  const auto outcome = run_sweep(spec, options_, [&](const CaseSettings& c, const CasePlan& p) {
    if (runs_ == 4) stop = true;
    CaseRecord r = inner(c, p);
    if (stop) r.status = Status::kSkipped;
    return r;
  });
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(rows().size(), 4u);
  options_.stop = nullptr;
  run_sweep(spec, options_, inner);
  EXPECT_EQ(runs_, whole + 1) << "only the interrupted trial is run twice";
}

TEST_F(BoundaryRunnerTest, ADimensionOfTheModelAndTheSizeOfAUnitCanBeSearched) {
  const RunCase run = [](const CaseSettings& c, const CasePlan&) {
    CaseRecord r;
    r.status = model_of(c).layers > 5 ? Status::kOom : Status::kOk;
    return r;
  };
  run_sweep(parse_spec("base: {set: {dim: 64}}\nboundary: {setting: layers, from: 1, to: 8}\n", "s.yaml"), options_,
            run);
  const auto found = rows();
  EXPECT_EQ(found.at("layers=5").status, Status::kOk);
  EXPECT_EQ(found.at("layers=6").status, Status::kOom);
  fs::remove_all(options_.directory);
  std::vector<std::string> wraps;
  run_sweep(parse_spec("boundary: {setting: size, values: [1000, 100000]}\n", "s.yaml"), options_,
            [&](const CaseSettings& c, const CasePlan&) {
              wraps.push_back(c.wrap.text);
              CaseRecord r;
              r.status = Status::kOk;
              return r;
            });
  EXPECT_THAT(wraps, testing::Contains("size:100000"));
}

TEST_F(BoundaryRunnerTest, InterleavedArmsTakeTurnsAndKeepTheirSamplesInStep) {
  const SweepSpec spec = parse_spec(
      "axes: {backward_prefetch: [none, pre]}\ninterleave: true\nrepeat: {min: 3, max: 6, relative_ci: 2%}\n",
      "s.yaml");
  std::vector<std::string> turns;
  std::vector<bool> traced;
  int round = 0;
  run_sweep(spec, options_, [&](const CaseSettings& c, const CasePlan& plan) {
    EXPECT_EQ(plan.repeat.min, 20);
    EXPECT_EQ(plan.repeat.max, 20);
    EXPECT_TRUE(plan.pin);
    turns.push_back(setting_text(c, "backward_prefetch"));
    traced.push_back(plan.trace);
    CaseRecord r;
    r.status = Status::kOk;
    r.samples = {1000 + 100 * (round / 2) + (c.backward_prefetch.mode == fsdp::BackwardPrefetch::kPre ? 0 : 50)};
    ++round;
    r.step_ns = r.samples[0];
    r.tokens_per_s = 1e6 / static_cast<double>(r.samples[0]);
    return r;
  });
  EXPECT_EQ(turns.size(), 12u);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(turns[i], i % 4 == 0 || i % 4 == 3 ? "none" : "pre") << "there and back";
    EXPECT_EQ(traced[i], i < 2);
  }
  const auto found = rows();
  const CaseRecord& a = found.at("backward_prefetch=none");
  EXPECT_EQ(a.samples, (std::vector<fsdp::Nanos>{1050, 1150, 1250, 1350, 1450, 1550}));
  EXPECT_EQ(a.step_ns, 1300);
  EXPECT_DOUBLE_EQ(*a.tokens_per_s, 1e6 / 1300);
  EXPECT_EQ(a.environment.at("interleaved"), "6");
}

// The machine becomes slower and slower, both arms alike: their ratio is known after the least number of rounds.
TEST_F(BoundaryRunnerTest, TurnsEndWhenTheRatioIsKnownThoughTheStepsAreNot) {
  const SweepSpec spec = parse_spec(
      "axes: {batch: [1, 2]}\ninterleave: {repetitions: 5}\nrepeat: {min: 8, max: 100, relative_ci: 2%}\n", "s.yaml");
  int trials = 0;
  run_sweep(spec, options_, [&](const CaseSettings& c, const CasePlan&) {
    const fsdp::Nanos step = (10'000 + 5'000 * (trials++ / 2)) * c.batch;
    CaseRecord r;
    r.status = Status::kOk;
    r.samples = {9 * step, step, 3 * step, 2 * step, step};  // the lower quartile is the quiet one
    r.step_ns = 2 * step;
    r.environment["machine.steal"] = "0.25";
    return r;
  });
  EXPECT_EQ(trials, 16);
  const auto found = rows();
  EXPECT_EQ(found.at("batch=1").samples,
            (std::vector<fsdp::Nanos>{10'000, 15'000, 20'000, 25'000, 30'000, 35'000, 40'000, 45'000}));
  EXPECT_EQ(found.at("batch=1").stopped_by, "narrow");
  std::ifstream table(fs::path(options_.directory) / "rounds.csv");
  std::string head, first;
  std::getline(table, head), std::getline(table, first);
  EXPECT_EQ(head, "case,round,started_at,steal,load,sample_ns,repetitions_ns\r");
  EXPECT_THAT(first, testing::EndsWith(",0.25,,10000,90000 10000 30000 20000 10000\r"));
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(table), {}, '\n'), 15);
}

TEST_F(BoundaryRunnerTest, AnInterruptedSweepInTurnsGoesOnWithItsRounds) {
  const SweepSpec spec = parse_spec("axes: {batch: [1, 2]}\ninterleave: true\nrepeat: {min: 4, max: 4}\n", "s.yaml");
  std::atomic<bool> stop{false};
  options_.stop = &stop;
  std::vector<int> turns;
  const auto sweep = [&](std::size_t stop_after) {
    stop = false;
    turns.clear();
    return run_sweep(spec, options_, [&](const CaseSettings& c, const CasePlan& plan) {
      CaseRecord r;
      if (turns.size() == stop_after) {
        stop = true;
        return r;
      }
      turns.push_back(c.batch);
      r.status = Status::kOk;
      r.samples = {static_cast<fsdp::Nanos>(1000 * c.batch + turns.size())};
      r.step_ns = r.samples[0];
      EXPECT_EQ(plan.trace, turns.size() <= 2 && stop_after == 5);
      return r;
    });
  };
  EXPECT_TRUE(sweep(5).interrupted);  // in the third round, after its first arm
  EXPECT_EQ(turns, (std::vector<int>{1, 2, 2, 1, 1}));
  EXPECT_FALSE(sweep(100).interrupted);
  EXPECT_EQ(turns, (std::vector<int>{1, 2, 2, 1})) << "the broken round is begun anew";
  const auto found = rows();
  EXPECT_EQ(found.at("batch=1").samples, (std::vector<fsdp::Nanos>{1001, 1004, 1001, 1004}));
  EXPECT_EQ(found.at("batch=2").samples, (std::vector<fsdp::Nanos>{2002, 2003, 2002, 2003}));
  EXPECT_FALSE(fs::exists(fs::path(options_.directory) / "rounds"));
}

// A step that scatters by 1 %: known to 2 % at once, to 0.75 % never.
TEST_F(BoundaryRunnerTest, ACaseAloneIsKnownToTwoPercentUnlessTheSpecSaysOtherwise) {
  const auto rounds = [&](const std::string& ci) {
    fs::remove_all(options_.directory);
    int trials = 0;
    run_sweep(parse_spec("axes: {batch: [1, 2]}\ninterleave: true\nrepeat: {min: 8, max: 12" + ci + "}\n", "s.yaml"),
              options_, [&](const CaseSettings& c, const CasePlan&) {
                CaseRecord r;
                r.status = c.batch == 2 ? Status::kOom : Status::kOk;
                r.samples = {trials++ % 2 == 0 ? 9'900 : 10'100};
                r.step_ns = r.samples[0];
                return r;
              });
    return rows().at("batch=1").samples.size();
  };
  EXPECT_EQ(rounds(""), 8u);
  EXPECT_EQ(rounds(", relative_ci: 2%"), 8u);
  EXPECT_EQ(rounds(", relative_ci: 0.75%"), 12u);
}

class RoundsTableTest : public BoundaryRunnerTest {
 protected:
  // Batch 2 runs out of memory in its second round.
  SweepOutcome sweep(const SweepHooks& hooks = {}, int trials = 1000) {
    const SweepSpec spec =
        parse_spec("axes: {batch: [1, 2, 3]}\ninterleave: true\nrepeat: {min: 2, max: 2}\n", "s.yaml");
    std::map<int, int> rounds;
    std::atomic<bool> stop{false};
    options_.stop = &stop;
    return run_sweep(
        spec, options_,
        [&](const CaseSettings& c, const CasePlan&) {
          CaseRecord r;
          if (trials-- == 0) {
            stop = true;
            return r;
          }
          r.status = c.batch == 2 && ++rounds[2] == 2 ? Status::kOom : Status::kOk;
          r.samples = {1000 * c.batch, 1000 * c.batch};
          r.step_ns = 1000 * c.batch;
          return r;
        },
        hooks);
  }
  void sweep_stopped_after_the_last_case() {
    SweepHooks hooks;
    hooks.after_case = [](const SweepProgress& p, const SweepCase&, const CaseRecord&) {
      if (p.finished == p.total) throw std::runtime_error("stopped");
    };
    EXPECT_THROW(sweep(hooks), std::runtime_error);
  }
  // Case and sample of each line, in order.
  std::vector<std::string> table() {
    std::vector<std::string> out;
    std::ifstream in(table_);
    for (std::string line; std::getline(in, line);) {
      const std::size_t blank = line.rfind(',');
      out.push_back(line.substr(line.rfind(',', blank - 1) + 1, blank - line.rfind(',', blank - 1) - 1));
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  bool kept() { return fs::exists(fs::path(options_.directory) / "rounds"); }
  fs::path table_;
  void SetUp() override {
    BoundaryRunnerTest::SetUp();
    table_ = fs::path(options_.directory) / "rounds.csv";
  }
  const std::vector<std::string> whole_{"1000", "1000", "2000", "3000", "3000", "sample_ns"};
};

TEST_F(RoundsTableTest, ACaseThatEndedBadlyBeforeAnInterruptionIsInItToo) {
  EXPECT_TRUE(sweep({}, 5).interrupted);  // 1 2 3, 3 2(out of memory), stopped at 1
  EXPECT_FALSE(fs::exists(table_));
  EXPECT_FALSE(sweep().interrupted);
  EXPECT_EQ(rows().at("batch=2").status, Status::kOom);
  EXPECT_EQ(table(), whole_);
  EXPECT_FALSE(kept());
}

TEST_F(RoundsTableTest, ASweepStoppedBeforeItWritesTheTableWritesItNextTime) {
  sweep_stopped_after_the_last_case();
  EXPECT_TRUE(kept());
  const SweepOutcome again = sweep();
  EXPECT_EQ(again.progress.ran, 0u);
  EXPECT_EQ(table(), whole_);
  EXPECT_FALSE(kept());
}

TEST_F(RoundsTableTest, ASweepStoppedAfterItWroteTheTableDoesNotWriteTwice) {
  sweep_stopped_after_the_last_case();
  const fs::path rounds = fs::path(options_.directory) / "rounds", copy = options_.directory + "_copy";
  fs::copy(rounds, copy, fs::copy_options::recursive);
  sweep();
  EXPECT_EQ(table(), whole_);
  fs::rename(copy, rounds);  // as if it had been stopped before the directory went
  sweep();
  EXPECT_EQ(table(), whole_);
  EXPECT_FALSE(kept());
}

TEST_F(RoundsTableTest, ATableThatCannotBeReadIsNotReplaced) {
  sweep_stopped_after_the_last_case();
  fs::create_symlink("/proc/self/mem", table_);  // opens, and no byte of it can be read
  try {
    sweep();
    FAIL() << "it was taken for absent";
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("rounds.csv] "), HasSubstr("cannot be read")));
  }
  EXPECT_TRUE(fs::is_symlink(table_));
  EXPECT_TRUE(kept());
  fs::remove(table_);
  sweep();
  EXPECT_EQ(table(), whole_);
}

TEST_F(RoundsTableTest, CasesOfAnEarlierSweepStayInIt) {
  sweep();
  options_.extend = true;
  options_.stop = nullptr;
  const SweepSpec more =
      parse_spec("axes: {batch: [1, 2, 3, 4]}\ninterleave: true\nrepeat: {min: 1, max: 1}\n", "s.yaml");
  run_sweep(more, options_, [&](const CaseSettings&, const CasePlan&) {
    CaseRecord r;
    r.status = Status::kOk;
    r.samples = {4000};
    return r;
  });
  EXPECT_EQ(table(), (std::vector<std::string>{"1000", "1000", "2000", "3000", "3000", "4000", "sample_ns"}));
}

TEST_F(BoundaryRunnerTest, ARightPredictionCostsTwoTrialsForEachPointAndIsInTheRecords) {
  SweepSpec spec = parse_spec(kSpec, "s.yaml");
  spec.boundary->check = 0;
  options_.fits = [](const CaseSettings& c) { return 1'000 + 50 * c.batch + 200 * c.forward_prefetch <= 3'000; };
  run_sweep(spec, options_, fake());
  EXPECT_EQ(runs_, 4);
  const auto found = rows();
  EXPECT_EQ(found.at("forward_prefetch=0, batch=40").environment.at("boundary_predicted"), "40");
  EXPECT_EQ(found.at("forward_prefetch=1, batch=37").environment.at("boundary_predicted"), "36");
}

TEST_F(BoundaryRunnerTest, AWrongPredictionIsFoundOutWithinTheBoundOfTrials) {
  SweepSpec spec = parse_spec(kSpec, "s.yaml");
  spec.boundary->check = 0;
  options_.fits = [](const CaseSettings& c) { return c.batch <= 3; };
  run_sweep(spec, options_, fake());
  EXPECT_EQ(rows().at("forward_prefetch=0, batch=41").status, Status::kOom);
  EXPECT_EQ(rows().at("forward_prefetch=1, batch=36").status, Status::kNearOom);
  EXPECT_LE(runs_, 2 * 7);
}

TEST_F(BoundaryRunnerTest, WithoutAnAnswerThereIsNoPrediction) {
  options_.fits = [](const CaseSettings&) { return std::optional<bool>(); };
  run_sweep(parse_spec(kSpec, "s.yaml"), options_, fake());
  EXPECT_EQ(rows().at("forward_prefetch=0, batch=40").environment.count("boundary_predicted"), 0u);
  EXPECT_EQ(rows().at("forward_prefetch=0, batch=41").status, Status::kOom);
}

class RefusedCasesTest : public BoundaryRunnerTest {
 protected:
  SweepProgress sweep() { return run_sweep(parse_spec(kRefused, "s.yaml"), options_, fake()).progress; }
  std::map<Status, std::size_t> statuses() {
    std::map<Status, std::size_t> out;
    for (const auto& [axes, r] : rows()) ++out[r.status];
    return out;
  }
  void SetUp() override {
    BoundaryRunnerTest::SetUp();
    options_.check = [](const CaseSettings& c) {
      if (c.world > 2) throw fsdp::EnvironmentError("[world] too many");
    };
  }
  static constexpr const char* kRefused =
      "base: {memory_budget: 3000B}\naxes: {world: [2, 4]}\nboundary: {setting: seq, from: 1, to: 2}\n";
};

TEST_F(RefusedCasesTest, AreNotPredictedAndCountOnceHoweverOftenTheSweepIsStarted) {
  options_.fits = [](const CaseSettings& c) {
    EXPECT_EQ(c.world, 2);
    return true;
  };
  for (int call = 0; call < 2; ++call) {
    const SweepProgress p = sweep();
    EXPECT_EQ(p.finished, 4u);
    EXPECT_EQ(p.total, 4u);
    EXPECT_EQ(p.by_status, statuses());
    for (const auto& [axes, r] : rows())
      EXPECT_EQ(r.environment.count("boundary_predicted") > 0, measured(r.status)) << axes;
  }
}

TEST_F(RefusedCasesTest, CountAsWhatTheyAreOnceTheyRun) {
  sweep();
  const std::size_t refused = statuses()[Status::kSkipped];
  options_.check = nullptr;
  const SweepProgress p = sweep();
  EXPECT_EQ(p.finished, 4u);
  EXPECT_EQ(p.by_status, statuses());
  EXPECT_LT(statuses()[Status::kSkipped], refused);
}

TEST(LargestThatFits, IsFoundByHalvingForEveryEdge) {
  for (int edge = -1; edge < 20; ++edge) {
    int asked = 0;
    const auto found = largest_that_fits(20, [&](int i) {
      ++asked;
      return std::optional<bool>(i <= edge);
    });
    EXPECT_EQ(found, edge);
    EXPECT_LE(asked, 5);
  }
}

}  // namespace
}  // namespace harness
