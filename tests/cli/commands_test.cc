// The commands from outside, with the fake rank of tests/trial instead of LibTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fsdp/core/clock.h"
#include "harness/store/store.h"
#include "harness/sweep/settings.h"
#include "tests/cli/call.h"
#include "tests/testing/time.h"

namespace {

using cli_test::call;
using cli_test::Called;
using cli_test::fake_rank;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
namespace fs = std::filesystem;

class CommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = cli_test::fresh_directory("commands");
    fs::create_directories(dir_);
    spec_ = dir_ + "/s.yaml";
    out_ = dir_ + "/out";
    cli_test::write_file(
        spec_, "name: four\nbase: {steps: 2}\naxes: {wrap: [root, block], seed: [0, 1]}\nrepeat: {min: 2, max: 2}\n");
  }
  void TearDown() override { fs::remove_all(dir_); }
  Called sweep(const std::string& plan = "", const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"sweep", spec_, "-o", out_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(arguments, fake_rank(plan));
  }
  std::vector<harness::CaseRecord> cases() { return harness::Store::open(out_).read_cases(); }
  // Waits, without a bound on how the machine is loaded, until `ready` or the program has ended.
  template <class F>
  void wait_until(F&& ready) {
    const fsdp::Nanos deadline = fsdp::steady_now() + testing_support::kPatience;
    while (!ready() && fsdp::steady_now() < deadline) fsdp::sleep_until(fsdp::steady_now() + 2'000'000);
    ASSERT_TRUE(ready());
  }
  std::string dir_, spec_, out_;
};

TEST_F(CommandsTest, HelpNamesEveryFlagWithItsDefaultAndShowsExamples) {
  for (const char* command : {"run", "plan"}) {
    const Called c = call({command, "--help"});
    EXPECT_EQ(c.code, 0);
    EXPECT_EQ(c.err, "");
    for (const harness::SettingRow& info : harness::setting_table()) {
      std::string flag = "--" + info.name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      EXPECT_THAT(c.out, HasSubstr(flag + " ")) << command;
      EXPECT_THAT(c.out, HasSubstr("(default " + info.standard + ")")) << flag;
    }
    EXPECT_THAT(c.out, HasSubstr("Examples:\n"));
  }
  for (const char* command : {"sweep", "report"}) EXPECT_THAT(call({command, "--help"}).out, HasSubstr("Examples:\n"));
  EXPECT_EQ(call({"doctor", "--help"}).code, 0);
  EXPECT_THAT(call({"--help"}).out, testing::AllOf(HasSubstr("Exit codes"), HasSubstr("sweep"), HasSubstr("plan")));
  EXPECT_THAT(call({"--version"}).out, StartsWith("shardscope "));
  EXPECT_EQ(call({}).code, 2);
}

// Time of the processor, so that what else runs on the machine does not count.
TEST_F(CommandsTest, HelpComesWithinTwentyMilliseconds) {
  std::int64_t best = 1'000'000;
  for (int i = 0; i < 10; ++i) best = std::min(best, call({"run", "--help"}).cpu_us);
  RecordProperty("best_us", static_cast<int>(best));
  EXPECT_LE(best, 20'000 * testing_support::kSlowdown);
}

TEST_F(CommandsTest, RunGivesOneJsonDocumentAndNothingElse) {
  const Called c = call({"run", "--json", "--steps", "2", "--repetitions", "3"}, fake_rank());
  EXPECT_EQ(c.code, 0) << c.err;
  EXPECT_EQ(c.err, "");
  const json r = json::parse(c.out);
  EXPECT_EQ(r["status"], "ok");
  EXPECT_EQ(r["case"], harness::case_id([] {
              harness::CaseSettings s;
              s.steps = 2;
              return s;
            }()));
  EXPECT_EQ(r["step_ns"], 4000);  // repetitions of the slower rank: 2000, 4000, 6000 a step
  EXPECT_EQ(r["repetitions"], 3);
  EXPECT_EQ(r["losses"], json({4.5, 2.5}));
  EXPECT_EQ(r["units"], 5);
  EXPECT_EQ(r["largest_unit_bytes"], 803'840);
  EXPECT_EQ(r["peak_bytes"], 960);
  EXPECT_EQ(r["peak_cause"], "unit of rank 1");
  std::int64_t sum = 0;
  for (const char* column : {"compute_ns", "overlapped_ns", "exposed_all_gather_forward_ns",
                             "exposed_all_gather_backward_ns", "exposed_reduce_scatter_ns", "exposed_other_ns",
                             "copy_ns", "host_ns", "memory_wait_ns", "optimizer_ns", "idle_ns"}) {
    ASSERT_TRUE(r[column].is_number_integer()) << column;
    sum += r[column].get<std::int64_t>();
  }
  EXPECT_EQ(sum, r["traced_step_ns"].get<std::int64_t>());
  for (const char* key : {"reason", "step_mad_ns", "step_ci_low_ns", "step_ci_high_ns", "tokens_per_s", "overlap_pct",
                          "collectives", "communicated_bytes", "observer_ratio", "emulated", "predicted", "grad_norms",
                          "unit_metrics", "environment", "unit_table", "ranks", "settings", "warnings"}) {
    EXPECT_TRUE(r.contains(key)) << key;
  }
  EXPECT_EQ(r["settings"]["steps"], "2");
  EXPECT_EQ(r["unit_metrics"][0]["unit"], "root");
}

TEST_F(CommandsTest, RunForPeopleShowsWhereTheStepGoes) {
  const Called c = call({"run", "--steps", "2", "--repetitions", "6", "--wire", "50us,10GB/s"}, fake_rank());
  EXPECT_EQ(c.code, 0);
  for (const char* text : {"llama, 2 ranks, wrap block, full_shard", "units    5, the largest 785.00 KiB",
                           "6 repetitions of 2 steps", "holds the median with 96.9 %", "where the traced step goes",
                           "exposed all-gather, forward", "memory at the peak: 960 B on rank 1 (unit of rank 1)",
                           "optimizer state", "warning  a warning of every rank", "50us,10GB/s (emulated)"}) {
    EXPECT_THAT(c.out, HasSubstr(text));
  }
}

TEST_F(CommandsTest, RunEndsWithOneWhenTheCaseDidNotWork) {
  const Called c = call({"run", "--json"}, fake_rank("1 oom repetition1"));
  EXPECT_EQ(c.code, 1);
  const json r = json::parse(c.out);
  EXPECT_EQ(r["status"], "oom");
  EXPECT_THAT(r["reason"].get<std::string>(), HasSubstr("rank 1"));
  EXPECT_TRUE(r["step_ns"].is_null());
  EXPECT_EQ(call({"run"}, fake_rank("0 kill repetition1")).code, 1);
}

TEST_F(CommandsTest, RunWritesTheTraceOfTheStep) {
  const std::string trace = dir_ + "/step.json";
  ASSERT_EQ(call({"run", "--steps", "2", "--trace", trace}, fake_rank()).code, 0);
  const json t = json::parse(cli_test::read_file(trace));
  EXPECT_GT(t["traceEvents"].size(), 6u);
  EXPECT_EQ(t["metadata"]["clock"], "one");
  EXPECT_EQ(t["metadata"]["regathered"], "");
  const std::vector<std::string> in_groups = {"run", "--world", "4", "--reshard-after-forward", "2", "--trace", trace};
  ASSERT_EQ(call(in_groups, fake_rank()).code, 0);
  EXPECT_THAT(json::parse(cli_test::read_file(trace))["metadata"]["regathered"].get<std::string>(), HasSubstr("1 2"));
  EXPECT_EQ(call({"run", "--steps", "2", "--trace", "/nowhere/x.json"}, fake_rank()).code, 2);
}

TEST_F(CommandsTest, RunKeepsWhatRanksSay) {
  ASSERT_EQ(call({"run", "--log-dir", dir_ + "/logs"}, fake_rank()).code, 0);
  EXPECT_THAT(cli_test::read_file(dir_ + "/logs/rank1.log"), HasSubstr("start"));
}

TEST_F(CommandsTest, SweepLeavesEveryFileOfTheContract) {
  const Called c = sweep();
  EXPECT_EQ(c.code, 0);
  EXPECT_EQ(c.out, "");
  EXPECT_THAT(c.err, HasSubstr("[4/4] wrap=block, seed=1   ok   "));
  EXPECT_THAT(c.err, HasSubstr("4 of 4 cases in " + out_ + ": 4 ok\n"));
  EXPECT_EQ(c.err.find('\r'), std::string::npos);  // no terminal, no control characters
  ASSERT_EQ(cases().size(), 4u);
  const std::string csv = cli_test::read_file(out_ + "/results.csv");
  EXPECT_THAT(csv, StartsWith("case,status,reason,wrap,seed,units,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  for (const harness::CaseRecord& r : cases()) {
    EXPECT_TRUE(fs::exists(out_ + "/traces/" + r.id + ".json.gz"));
    EXPECT_TRUE(fs::exists(out_ + "/logs/" + r.id + "/rank0.log"));
  }
  harness::Store store = harness::Store::open(out_);
  EXPECT_THAT(store.read_sweep().command, HasSubstr("shardscope sweep "));
  EXPECT_FALSE(store.read_sweep().environment.empty());
  EXPECT_FALSE(store.read_spans(cases()[0].id).empty());
}

TEST_F(CommandsTest, SweepGoesOnWhereItStoodAndRefusesAnotherSpec) {
  ASSERT_EQ(sweep().code, 0);
  const std::int64_t written = cases()[0].finished_at;
  const Called again = sweep("0 kill start");  // would fail if anything ran
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.err, testing::EndsWith("4 of 4 cases in " + out_ + ": 4 ok\n"));
  EXPECT_EQ(cases()[0].finished_at, written);
  cli_test::write_file(
      spec_, "name: five\nbase: {steps: 3}\naxes: {wrap: [root, block], seed: [0, 1]}\nrepeat: {min: 2, max: 2}\n");
  const Called other = sweep();
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, testing::AllOf(HasSubstr("\"four\""), HasSubstr("s.yaml"),
                                        HasSubstr("steps is 2 there and 3 here"), HasSubstr("--extend")));
  EXPECT_EQ(sweep("", {"--extend"}).code, 0);
  EXPECT_EQ(cases().size(), 8u);
}

TEST_F(CommandsTest, FailedCasesAreRowsAndStrictTellsThem) {
  const Called c = sweep("1 comm_error repetition1");
  EXPECT_EQ(c.code, 0);
  EXPECT_THAT(c.err, HasSubstr("4 comm_error"));
  for (const harness::CaseRecord& r : cases()) EXPECT_EQ(r.status, harness::Status::kCommError);
  EXPECT_EQ(sweep("", {"--strict"}).code, 1);
}

TEST_F(CommandsTest, ControlCEndsTheRunningTrialAndSavesTheState) {
  cli_test::Call running({"sweep", spec_, "-o", out_}, fake_rank("1 hang repetition2"));
  wait_until([&] { return fs::exists(out_ + "/logs"); });
  running.signal(SIGINT);
  const Called c = running.wait();
  EXPECT_EQ(c.code, 130);
  EXPECT_THAT(c.err, HasSubstr("interrupted; the same command goes on"));
  EXPECT_TRUE(cases().empty());
  EXPECT_EQ(sweep().code, 0);
  EXPECT_EQ(cases().size(), 4u);
}

TEST_F(CommandsTest, AKilledSweepLosesTheRunningCaseAlone) {
  cli_test::Call running({"sweep", spec_, "-o", out_}, fake_rank());
  // The trace of a second case comes after the row of the first.
  wait_until([&] {
    std::size_t traces = 0;
    if (fs::exists(out_ + "/traces"))
      for (const auto& e : fs::directory_iterator(out_ + "/traces")) traces += e.path().extension() == ".gz";
    return traces >= 2;
  });
  running.signal(SIGKILL);
  EXPECT_EQ(running.wait().code, 128 + SIGKILL);
  const std::size_t kept = cases().size();
  EXPECT_GE(kept, 1u);
  EXPECT_EQ(sweep().code, 0);
  EXPECT_EQ(cases().size(), 4u);
}

TEST_F(CommandsTest, ASecondSweepOnTheDirectoryIsRefused) {
  cli_test::Call running({"sweep", spec_, "-o", out_}, fake_rank("1 hang repetition2"));
  wait_until([&] { return fs::exists(out_ + "/logs"); });
  const Called second = sweep();
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another sweep (process " + std::to_string(running.pid()) + ") is writing here"));
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 130);
}

TEST_F(CommandsTest, DryRunListsCasesWithPredictedMemoryAndRunsNothing) {
  cli_test::write_file(spec_, "base: {memory_budget: 8MiB}\naxes: {wrap: [root, block, \"class:Nope\"]}\n");
  const Called c = call({"sweep", spec_, "--dry-run"}, {{"SHARDSCOPE_RANK", "/nowhere"}});
  EXPECT_EQ(c.code, 0);
  EXPECT_THAT(c.out, HasSubstr("wrap=root          1 units"));
  EXPECT_THAT(c.out, HasSubstr("above memory_budget 8MiB"));
  EXPECT_THAT(c.out, HasSubstr("config_error: [wrap] no module has the type or path 'Nope'"));
  EXPECT_THAT(c.out, HasSubstr("3 cases, 6 to 30 repetitions each, 120s per trial at most"));
}

TEST_F(CommandsTest, ReportComesFromTheDatabaseAlone) {
  ASSERT_EQ(sweep().code, 0);
  fs::remove_all(out_ + "/logs");
  fs::remove_all(out_ + "/traces");
  fs::remove(spec_);
  const std::string first_csv = cli_test::read_file(out_ + "/results.csv");
  const Called c = call({"report", out_, "--csv", dir_ + "/again.csv"});
  EXPECT_EQ(c.code, 0) << c.err;
  EXPECT_THAT(c.out, testing::EndsWith(out_ + "/report.html\n"));
  EXPECT_THAT(cli_test::read_file(out_ + "/report.html"), HasSubstr("<html"));
  EXPECT_EQ(cli_test::read_file(dir_ + "/again.csv"), first_csv);
  EXPECT_EQ(call({"report", out_, out_, "-o", dir_ + "/both.html"}).code, 0);
  EXPECT_TRUE(fs::exists(dir_ + "/both.html"));
  EXPECT_EQ(call({"report", out_, "-o", "/nowhere/r.html"}).code, 2);
}

TEST_F(CommandsTest, DoctorEndsWithThreeWithoutARankProgram) {
  const Called c = call({"doctor"}, {{"SHARDSCOPE_RANK", "/nowhere/rank"}});
  EXPECT_EQ(c.code, 3);
  for (const char* text : {"/nowhere/rank is not there", "scripts/dependencies", "built without CUDA",
                           "--device virtual", "cores", "memory", "vector units"}) {
    EXPECT_THAT(c.out, HasSubstr(text));
  }
  const json d = json::parse(call({"doctor", "--json"}, {{"SHARDSCOPE_RANK", "/nowhere/rank"}}).out);
  EXPECT_EQ(d["can_run"], false);
  EXPECT_EQ(call({"doctor"}, {{"SHARDSCOPE_RANK", "/bin/false"}}).code, 3);
}

// As the kernel ends a program when memory runs out.
TEST_F(CommandsTest, DoctorDoesNotCallAKilledRankProgramOneThatDidNotAnswer) {
  const std::string rank = dir_ + "/rank";
  std::ofstream(rank) << "#!/bin/sh\nkill -KILL $$\n";
  fs::permissions(rank, fs::perms::owner_all);
  const Called c = call({"doctor"}, {{"SHARDSCOPE_RANK", rank}});
  EXPECT_EQ(c.code, 3);
  EXPECT_THAT(c.out, HasSubstr(rank + " does not start"));
  EXPECT_THAT(c.out, Not(HasSubstr("no answer")));
}

}  // namespace
