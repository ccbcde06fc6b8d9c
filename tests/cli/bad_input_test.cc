// Every wrong word gets one sentence on standard error, nothing on standard output, and its exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "harness/sweep/cuda_support.h"
#include "tests/cli/call.h"

namespace {

using cli_test::call;
using cli_test::Called;
using testing::HasSubstr;
using testing::StartsWith;

void expect_one_sentence(const Called& c, int code, const std::string& says, const std::string& about) {
  EXPECT_EQ(c.code, code) << about << "\n" << c.err;
  EXPECT_EQ(c.out, "") << about;
  EXPECT_THAT(c.err, StartsWith("shardscope: ")) << about;
  EXPECT_EQ(std::count(c.err.begin(), c.err.end(), '\n'), 1) << about << "\n" << c.err;
  EXPECT_THAT(c.err, HasSubstr(says)) << about;
}

TEST(BadInput, WrongWordsOnTheCommandLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> rows = {
      {{"rn"}, "\"rn\" is not a command; nearest: run"},
      {{"--wrap", "block"}, "--wrap stands before any command; name one first: run, sweep"},
      {{"run", "--wrp", "block"}, "[run] --wrp is not a flag; nearest: --wrap"},
      {{"run", "--wrp=block"}, "nearest: --wrap"},
      {{"run", "block"}, "\"block\" is one word too many"},
      {{"run", "--wrap"}, "--wrap"},
      {{"run", "--wrap", "blok"}, "[wrap] 'blok' is not a wrap policy (nearest: block)"},
      {{"run", "--wrap", "blocks:0"}, "[wrap] blocks:0"},
      {{"run", "--wrap", "class:llamadecoderlayer"}, "LlamaDecoderLayer"},
      {{"run", "--wrap", "plan:missing.yaml"}, "missing.yaml"},
      {{"run", "--world", "0"}, "[world] \"0\""},
      {{"run", "--world", "-1"}, "[world] \"-1\""},
      {{"run", "--world", "2.5"}, "[world] \"2.5\""},
      {{"run", "--world", "99999999999999999999"}, "[world]"},
      {{"run", "--model", "lama"}, "llama"},
      {{"run", "--model", "/nowhere/config.json"}, "/nowhere/config.json"},
      {{"run", "--set", "layrs=3"}, "layers"},
      {{"run", "--set", "dim=100,heads=3"}, "heads"},
      {{"run", "--set", "layers"}, "NAME=VALUE"},
      {{"run", "--memory-budget", "-4MiB"}, "negative"},
      {{"run", "--memory-budget", "4MiBB"}, "MiBB"},
      {{"run", "--wire", "50us"}, "LATENCY,BANDWIDTH"},
      {{"run", "--wire", "50us,10GB"}, "10GB/s"},
      {{"run", "--step-timeout", "60"}, "no unit"},
      {{"run", "--strategy", "fullshard"}, "full_shard"},
      {{"run", "--strategy", "hybrid_shard:3"}, "does not divide world 2"},
      {{"run", "--reshard-after-forward", "3"}, "do not divide the 2 ranks"},
      {{"run", "--device", "virtual", "--hardware", "h100"}, "nearest: h100-sxm"},
      {{"run", "--hardware", "h100-sxm"}, "for device virtual alone"},
      {{"run", "--collectives", "nccl"}, "needs device cuda"},
      {{"run", "--repetitions", "0"}, "--repetitions"},
      {{"plan", "--wrap", "class:Nope"}, "Nope"},
      {{"sweep"}, "SPEC is required"},
      {{"sweep", "missing.yaml", "-o", "x"}, "[missing.yaml] does not exist"},
      {{"sweep", ".", "-o", "x"}, "is a directory"},
      {{"report"}, "DIR is required"},
      {{"report", "/nowhere"}, "[/nowhere] does not exist"}};
  for (const auto& [arguments, says] : rows)
    expect_one_sentence(call(arguments), 2, says, testing::PrintToString(arguments));
}

TEST(BadInput, WrongSpecsNameFileAndLine) {
  const std::string dir = cli_test::fresh_directory("specs");
  std::filesystem::create_directories(dir);
  const std::string file = dir + "/s.yaml", out = dir + "/out";
  const std::vector<std::array<std::string, 2>> rows = {
      {"base:\n  wrap: blok\n", "s.yaml:2: wrap] 'blok'"},
      {"base:\n  model: llama\n  batch: -1\n", "s.yaml:3: batch] \"-1\""},
      {"base:\n  seq: long\n", "s.yaml:2: seq] \"long\""},
      {"base:\n  forward_prefech: 1\n",
       "s.yaml:2] \"forward_prefech\" is not a key of base; nearest: forward_prefetch"},
      {"axes:\n  wrap: []\n", "s.yaml:2] axis wrap has no values"},
      {"axes:\n  wrap: [root]\n  wrap: [block]\n", "s.yaml:3] \"wrap\" is given twice in axes"},
      {"axes:\n  batch: [1, two]\n", "s.yaml:2: batch] \"two\""},
      {"bse: {}\n", "s.yaml:1] \"bse\" is not a key of the spec; nearest: base"},
      {"boundary: {setting: batch}\n", "s.yaml:1] boundary takes either from and to"},
      {"base: {\n", "not YAML"},
      {std::string(10 << 20, 'x'), "s.yaml] is larger than 1MiB"},
      {std::string("\0\1\2", 3), "s.yaml] is not text"},
      {" \n", "s.yaml] is empty"}};
  for (const auto& [text, says] : rows) {
    cli_test::write_file(file, text);
    expect_one_sentence(call({"sweep", file, "-o", out}), 2, says, text.substr(0, 60));
    expect_one_sentence(call({"sweep", file, "--dry-run"}), 2, says, text.substr(0, 60));
  }
  EXPECT_FALSE(std::filesystem::exists(out));
  cli_test::write_file(file, "axes: {wrap: [root]}\n");
  expect_one_sentence(call({"sweep", file}), 2, "[-o] is missing", "no -o");
  expect_one_sentence(call({"sweep", file, "-o", file}), 2, "is not a directory", "a file for -o");
  expect_one_sentence(call({"sweep", file, "-o", out, "--launcher", "pbs"}), 2, "is not a launcher", "launcher");
  std::filesystem::remove_all(dir);
}

TEST(BadInput, WhatIsNoResultDirectory) {
  const std::string dir = cli_test::fresh_directory("results");
  std::filesystem::create_directories(dir);
  expect_one_sentence(call({"report", dir}), 2, "holds no results.db", "empty directory");
  cli_test::write_file(dir + "/results.db", std::string(4096, 'x'));
  expect_one_sentence(call({"report", dir}), 2, "not a database", "garbage");
  expect_one_sentence(call({"report", dir, dir, "--csv", dir + "/x.csv"}), 2, "[--csv] takes one directory",
                      "csv of two");
  std::filesystem::remove_all(dir);
}

TEST(BadInput, WhatThisMachineCannotDoHasItsRemedyAndItsOwnCode) {
  const std::string why =
      harness::built_with_cuda() ? "or use --device cpu" : "this shardscope is built without CUDA; build it with";
  if (!harness::cuda_runs_here()) expect_one_sentence(call({"run", "--device", "cuda"}), 3, why, "cuda");
  expect_one_sentence(call({"run"}, {{"SHARDSCOPE_RANK", "/nowhere/rank"}}), 3, "/nowhere/rank", "no rank program");
  const std::string dir = cli_test::fresh_directory("cannot");
  std::filesystem::create_directories(dir);
  cli_test::write_file(dir + "/s.yaml", "base: {device: cuda}\n");
  if (!harness::cuda_runs_here())
    expect_one_sentence(call({"sweep", dir + "/s.yaml", "-o", dir + "/out"}), 3, why, "sweep");
  const std::string crowd = "ranks are as many processes";
  expect_one_sentence(call({"run", "--world", "1000000"}), 3, crowd, "more ranks than a machine starts");
  cli_test::write_file(dir + "/s.yaml", "axes: {world: [1000000, 2000000]}\n");
  expect_one_sentence(call({"sweep", dir + "/s.yaml", "-o", dir + "/out"}), 3, crowd, "before the first case");
  EXPECT_FALSE(std::filesystem::exists(dir + "/out"));
  cli_test::write_file(dir + "/s.yaml", "axes: {world: [2, 1000000]}\n");
  EXPECT_EQ(call({"sweep", dir + "/s.yaml", "-o", dir + "/out"}, cli_test::fake_rank()).code, 0);
  const std::string rows = cli_test::read_file(dir + "/out/results.csv");
  EXPECT_NE(rows.find(",ok,"), std::string::npos) << "what can run does";
  EXPECT_NE(rows.find("[world] 1000000 " + crowd), std::string::npos) << rows;
  std::filesystem::remove_all(dir);
}

TEST(BadInput, WhatCannotBeWrittenIsSaidBeforeTheRun) {
  expect_one_sentence(call({"run", "--trace", "/nowhere/t.json"}, cli_test::fake_rank()), 2,
                      "[--trace] /nowhere/t.json", "no case on standard output");
}

// Rank 0 writes the trace; another rank may stand on a host without that directory.
TEST(BadInput, ARankThatFollowsDoesNotCheckWhatItWillNotWrite) {
  const cli_test::Called c = call({"run", "--trace", "/nowhere/t.json"}, {{"SHARDSCOPE_RANK", "/nowhere/rank"},
                                                                          {"RANK", "1"},
                                                                          {"WORLD_SIZE", "2"},
                                                                          {"LOCAL_RANK", "1"},
                                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                                          {"MASTER_PORT", "1"}});
  EXPECT_NE(c.code, 0);
  EXPECT_EQ(c.err.find("--trace"), std::string::npos) << c.err;
}

// A plain file takes the place of what has the name: of a pipe it must not.
TEST(BadInput, WhatIsNoPlainFileIsSaidBeforeTheRun) {
  const std::string dir = cli_test::fresh_directory("pipes");
  std::filesystem::create_directories(dir);
  for (const char* name : {"/costs.yaml", "/t.json"}) ASSERT_EQ(::mkfifo((dir + name).c_str(), 0600), 0);
  expect_one_sentence(call({"calibrate", "-o", dir + "/costs.yaml"}, {{"SHARDSCOPE_RANK", "/bin/false"}}), 2,
                      "[-o] " + dir + "/costs.yaml cannot be written", "calibrate");
  expect_one_sentence(call({"run", "--trace", dir + "/t.json"}, cli_test::fake_rank()), 2,
                      "[--trace] " + dir + "/t.json cannot be written", "run");
  for (const char* name : {"/costs.yaml", "/t.json"}) EXPECT_TRUE(std::filesystem::is_fifo(dir + name));
  std::filesystem::remove_all(dir);
}

TEST(BadInput, ACalibrationThatFailsLeavesNoFile) {
  const std::string file = testing::TempDir() + "shardscope_costs.yaml";
  std::filesystem::remove(file);
  expect_one_sentence(call({"calibrate", "-o", file}, {{"SHARDSCOPE_RANK", "/bin/false"}}), 3, "ended without a result",
                      "no costs");
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(file + ".part"));
  expect_one_sentence(call({"calibrate", "-o", "/nowhere/costs.yaml"}), 2, "[-o] /nowhere/costs.yaml", "at once");
}

TEST(BadInput, CalibrateWritesOnlyWhatHardwareTakes) {
  expect_one_sentence(call({"calibrate", "-o", "costs.json"}), 2, "write costs.json.yaml", "before minutes of work");
}

TEST(BadInput, ALaunchersContractThatIsNotCompleteIsSaidAtOnce) {
  expect_one_sentence(call({"run"}, {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}}), 2,
                      "does not say where rank 0 listens", "MASTER_ADDR");
  expect_one_sentence(call({"run"}, {{"OMPI_COMM_WORLD_SIZE", "2"}}), 2, "without OMPI_COMM_WORLD_RANK", "mpirun");
  expect_one_sentence(call({"run"}, {{"TORCHELASTIC_RUN_ID", "x"}}), 2, "without RANK, WORLD_SIZE", "torchrun");
}

TEST(BadInput, ASweepOfManyCasesIsNoRankOfALauncher) {
  const std::string file = testing::TempDir() + "launched.yaml";
  cli_test::write_file(file, "axes: {seed: [0, 1]}\n");
  expect_one_sentence(call({"sweep", file, "-o", testing::TempDir() + "launched_out"}, {{"RANK", "0"},
                                                                                        {"WORLD_SIZE", "2"},
                                                                                        {"LOCAL_RANK", "0"},
                                                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                                                        {"MASTER_PORT", "29500"}}),
                      2, "has started 2 ranks of a sweep of 2 cases", "--nodes");
}

}  // namespace
