// Directories that came by mail, disks that are full, files that are none: what the commands do with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "fsdp/core/clock.h"
#include "harness/store/store.h"
#include "tests/cli/call.h"

namespace {

using cli_test::call;
using cli_test::Called;
using cli_test::fake_rank;
using cli_test::read_file;
using cli_test::write_file;
using testing::HasSubstr;
namespace fs = std::filesystem;

class HostileFiles : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = cli_test::fresh_directory("hostile");
    fs::create_directories(dir_);
    spec_ = dir_ + "/s.yaml";
    out_ = dir_ + "/out";
    write_file(spec_, "base: {steps: 2}\naxes: {wrap: [root, block]}\nrepeat: {min: 1, max: 1}\n");
  }
  void TearDown() override { fs::remove_all(dir_); }
  Called sweep(const std::string& plan = "", const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"sweep", spec_, "-o", out_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(arguments, fake_rank(plan));
  }
  // In a shell; the words are the program's, $SHARDSCOPE is it.
  int shell(const std::string& command) {
    ::setenv("SHARDSCOPE", cli_test::program().c_str(), 1);
    const auto environment = fake_rank();
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::size_t traces() {
    std::size_t n = 0;
    for (const auto& e : fs::directory_iterator(out_ + "/traces")) n += e.path().extension() == ".gz";
    return n;
  }
  std::string dir_, spec_, out_;
};

TEST_F(HostileFiles, LinksInAResultsDirectoryAreNeverWrittenThrough) {
  ASSERT_EQ(sweep().code, 0);
  const std::string victim = dir_ + "/victim";
  const std::string id = harness::Store::open(out_).finished_ids().front();
  const std::vector<std::string> names = {"report.html",
                                          "report.html.part",
                                          "results.csv",
                                          "results.csv.part",
                                          "traces/" + id + ".json.gz",
                                          "traces/" + id + ".json.gz.tmp",
                                          "logs/" + id + "/rank0.log"};
  for (const std::string& name : names) {
    write_file(victim, "precious");
    fs::remove(out_ + "/" + name);
    fs::create_symlink(victim, out_ + "/" + name);
    EXPECT_EQ(sweep("", {"--retry", "ok"}).code, 0) << name;
    EXPECT_EQ(call({"report", out_}).code, 0) << name;
    EXPECT_EQ(read_file(victim), "precious") << name;
    fs::remove(out_ + "/" + name);
  }
}

TEST_F(HostileFiles, FoldersAndLocksThatAreLinksAreRefusedInOneSentence) {
  ASSERT_EQ(sweep().code, 0);
  const std::string victim = dir_ + "/victim";
  for (const char* name : {".lock", "results.db", "traces", "logs"}) {
    const std::string kept = dir_ + "/kept";
    fs::rename(out_ + "/" + name, kept);
    fs::create_directories(victim);
    if (std::string(name) == ".lock" || std::string(name) == "results.db") {
      fs::remove_all(victim);
      write_file(victim, "");
    }
    fs::create_symlink(victim, out_ + "/" + name);
    const Called c = sweep("", {"--retry", "ok"});
    EXPECT_EQ(c.code, 2) << name << c.err;
    EXPECT_THAT(c.err, HasSubstr(name)) << name;
    EXPECT_TRUE(fs::is_directory(victim) ? fs::is_empty(victim) : read_file(victim).empty()) << name;
    fs::remove(out_ + "/" + name);
    fs::rename(kept, out_ + "/" + name);
    fs::remove_all(victim);
  }
  write_file(victim, "precious");  // another name of the same file
  fs::remove(out_ + "/.lock");
  fs::create_hard_link(victim, out_ + "/.lock");
  EXPECT_EQ(sweep().code, 2);
  EXPECT_EQ(read_file(victim), "precious");
}

TEST_F(HostileFiles, ReportsAtATimeAllSucceed) {
  ASSERT_EQ(sweep().code, 0);
  for (int round = 0; round < 3; ++round) {
    std::vector<cli_test::Call> calls;
    for (int i = 0; i < 4; ++i) calls.emplace_back(std::vector<std::string>{"report", out_});
    for (cli_test::Call& c : calls) EXPECT_EQ(c.wait().code, 0);
  }
}

TEST_F(HostileFiles, AnAnswerThatDoesNotArriveIsSaidAndNoSuccess) {
  ASSERT_EQ(sweep().code, 0);
  const std::string gz = fs::directory_iterator(out_ + "/traces")->path();
  const std::vector<std::string> commands = {"plan",
                                             "run",
                                             "report '" + out_ + "'",
                                             "recommend '" + out_ + "'",
                                             "analyze '" + gz + "'",
                                             "doctor",
                                             "--help",
                                             "--version",
                                             "sweep --help",
                                             "plan --json",
                                             "run --json",
                                             "analyze --json '" + gz + "'",
                                             "compare '" + out_ + "' '" + out_ + "'",
                                             "sweep '" + spec_ + "' --dry-run"};
  for (const std::string& c : commands) {
    for (const char* where : {"> /dev/full", ">&-"}) {
      const int code = shell("\"$SHARDSCOPE\" " + c + " 2>'" + dir_ + "/err' " + where);
      EXPECT_TRUE(code >= 1 && code <= 3) << c << " " << where << ": " << code;
      EXPECT_THAT(read_file(dir_ + "/err"), HasSubstr("[standard output] cannot be written")) << c << " " << where;
    }
  }
  EXPECT_EQ(shell("\"$SHARDSCOPE\" plan > /dev/null"), 0);
}

TEST_F(HostileFiles, AClosedOutputIsNotTakenForAFile) {
  EXPECT_EQ(shell("\"$SHARDSCOPE\" sweep '" + spec_ + "' -o '" + out_ + "' <&- >&- 2>&-"), 0);
  EXPECT_EQ(harness::Store::open(out_).read_cases(harness::Store::Detail::kAll).size(), 2u);
}

TEST_F(HostileFiles, WhatIsNoFileIsRefusedInOneSentenceAtOnce) {
  ASSERT_EQ(::mkfifo((dir_ + "/pipe.json").c_str(), 0600), 0);
  ASSERT_EQ(::truncate((write_file(dir_ + "/huge.json", "{"), dir_ + "/huge.json").c_str(), 3ll << 30), 0);
  fs::create_directories(dir_ + "/folder.json");
  const std::vector<std::pair<std::string, std::string>> files = {{"/dev/zero", "is a device"},
                                                                  {dir_ + "/pipe.json", "is a pipe"},
                                                                  {dir_ + "/huge.json", "is larger than 16MiB"},
                                                                  {dir_ + "/folder.json", "is a directory"}};
  for (const auto& [file, words] : files) {
    const std::vector<std::vector<std::string>> calls = {{"plan", "--model", file},
                                                         {"plan", "--wrap", "plan:" + file},
                                                         {"run", "--device", "virtual", "--hardware", file},
                                                         {"run", "--prefetch-order", file}};
    for (const auto& arguments : calls) {
      const Called c = call(arguments, fake_rank());
      EXPECT_EQ(c.code, 2) << arguments[1] << " " << c.err;
      EXPECT_THAT(c.err, HasSubstr(words)) << arguments[1];
    }
  }
  for (const char* spec : {"/dev/zero", "/"}) {
    const Called c = call({"sweep", spec, "-o", out_});
    EXPECT_EQ(c.code, 2) << c.err;
    EXPECT_THAT(c.err, HasSubstr("give a sweep spec in YAML"));
  }
}

TEST_F(HostileFiles, MoreCasesThanASweepMayHaveAreCountedNotMade) {
  std::string list = "[";
  for (int i = 1; i <= 2000; ++i) list += (i > 1 ? "," : "") + std::to_string(i);
  list += "]";
  write_file(spec_, "axes:\n  batch: " + list + "\n  seq: " + list + "\n  seed: " + list + "\n");
  const fsdp::Nanos begin = fsdp::steady_now();
  const Called c = call({"sweep", spec_, "-o", out_, "--dry-run"});
  EXPECT_EQ(c.code, 2);
  EXPECT_THAT(c.err, HasSubstr("2000 of batch times 2000 of seq times 2000 of seed values are 8e+09 cases"));
  EXPECT_LT(fsdp::steady_now() - begin, 20'000'000'000);
  write_file(spec_, "axes: {seq: " + list + "}\nboundary: {setting: batch, from: 1, to: 1000}\n");
  EXPECT_EQ(call({"sweep", spec_, "-o", out_}).code, 2);
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(HostileFiles, ATraceThatIsMissingIsMadeAgainFromTheDatabase) {
  ASSERT_EQ(sweep().code, 0);
  ASSERT_EQ(traces(), 2u);
  const fs::path trace = fs::directory_iterator(out_ + "/traces")->path();
  const std::string whole = read_file(trace);
  fs::remove(trace);
  write_file(trace.parent_path() / ("." + trace.filename().string() + ".1-0.part"), "half");
  ASSERT_EQ(sweep().code, 0);
  EXPECT_EQ(read_file(trace), whole);
  EXPECT_EQ(std::distance(fs::directory_iterator(out_ + "/traces"), {}), 2);
}

TEST_F(HostileFiles, AFileSizeLimitIsSaidAndTheSameCommandGoesOn) {
  const std::string words = " sweep '" + spec_ + "' -o '" + out_ + "' 2>'" + dir_ + "/err'";
  const int code = shell("ulimit -f 60; \"$SHARDSCOPE\"" + words);
  EXPECT_TRUE(code == 2 || code == 3) << code << read_file(dir_ + "/err");
  EXPECT_THAT(read_file(dir_ + "/err"), HasSubstr("shardscope: ["));
  EXPECT_EQ(shell("\"$SHARDSCOPE\"" + words), 0);
  EXPECT_EQ(traces(), 2u);
}

TEST_F(HostileFiles, AKilledRankIsRunAgainByTheNextCallAndACrashByRetry) {
  Called c = sweep("0 kill repetition1");
  EXPECT_EQ(c.code, 0);
  EXPECT_THAT(c.err, HasSubstr("2 cases were ended by trouble that may pass; the same command runs them again:"));
  EXPECT_THAT(c.err, HasSubstr("wrap=root (a signal from outside): rank 0 was killed by SIGKILL"));
  EXPECT_EQ(sweep("0 kill repetition1", {"--strict"}).code, 1);
  c = sweep("0 exit repetition1");
  EXPECT_THAT(c.err, HasSubstr("2 crashed"));
  EXPECT_THAT(c.err, testing::Not(HasSubstr("may pass")));
  c = sweep();
  EXPECT_THAT(c.err, HasSubstr("2 crashed"));
  c = sweep("", {"--retry", "timeout, crashed"});
  EXPECT_THAT(c.err, HasSubstr("2 ok"));
  c = sweep("", {"--retry", "bad"});
  EXPECT_EQ(c.code, 2);
  EXPECT_THAT(c.err, HasSubstr("\"bad\" is no status"));
}

TEST_F(HostileFiles, ADatabaseThatIsHeldForLongerThanFiveSecondsIsWaitedFor) {
  ASSERT_EQ(sweep().code, 0);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((out_ + "/results.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  cli_test::Call running({"sweep", spec_, "-o", out_, "--retry", "ok"}, fake_rank());
  fsdp::sleep_until(fsdp::steady_now() + 7'000'000'000);
  sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  const Called c = running.wait();
  EXPECT_EQ(c.code, 0) << c.err;
  EXPECT_THAT(c.err, HasSubstr("another process holds"));
  EXPECT_EQ(harness::Store::open(out_).read_cases().size(), 2u);
}

}  // namespace
