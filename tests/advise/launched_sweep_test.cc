// A sweep whose trials are job steps of a launcher: `env`, which starts what it is given, stands for srun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "harness/store/store.h"
#include "tests/cli/call.h"

namespace {

using cli_test::call;
using cli_test::Called;
using testing::HasSubstr;
namespace fs = std::filesystem;

class LaunchedSweep : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = cli_test::fresh_directory(testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(dir_);
    cli_test::write_file(
        dir_ + "/s.yaml",
        "base: {steps: 2}\naxes: {wrap: [root, 'class:Embedding,LlamaDecoderLayer']}\nrepeat: {min: 2, max: 2}\n");
  }
  void TearDown() override { fs::remove_all(dir_); }
  Called sweep(const std::string& launcher, const std::string& fault = "") {
    return call({"sweep", dir_ + "/s.yaml", "-o", dir_ + "/out", "--launcher", launcher}, cli_test::fake_rank(fault));
  }
  std::vector<harness::CaseRecord> cases() { return harness::Store::open(dir_ + "/out").read_cases(); }
  std::string dir_;
};

TEST_F(LaunchedSweep, ResultsComeBackToTheLaunchingNode) {
  const Called c = sweep("template:env {command}");
  EXPECT_EQ(c.code, 0) << c.err;
  const auto all = cases();
  ASSERT_EQ(all.size(), 2u);
  for (const auto& r : all) {
    EXPECT_EQ(r.status, harness::Status::kOk) << r.reason;
    EXPECT_EQ(r.samples.size(), 2u);
    EXPECT_TRUE(r.partition);
  }
  EXPECT_TRUE(!fs::exists(dir_ + "/out/steps") || fs::is_empty(dir_ + "/out/steps"));
}

TEST_F(LaunchedSweep, AFailureOfARankIsTheRowOfItsCase) {
  EXPECT_EQ(sweep("template:env {command}", "1 oom repetition1").code, 0);
  for (const auto& r : cases()) EXPECT_EQ(r.status, harness::Status::kOom);
}

TEST_F(LaunchedSweep, AStepThatFailsIsARowWithTheLaunchersLastWords) {
  EXPECT_EQ(sweep("template:ls /nowhere-at-all {command}").code, 0);
  for (const auto& r : cases()) {
    EXPECT_EQ(r.status, harness::Status::kCrashed);
    EXPECT_THAT(r.reason, HasSubstr("the job step left no result"));
  }
}

TEST_F(LaunchedSweep, AnAbsentOrUnknownLauncherEndsTheSweepWithTheRemedy) {
  const Called absent = sweep("template:no-such-launcher {command}");
  EXPECT_EQ(absent.code, 3);
  EXPECT_THAT(absent.err, HasSubstr("cannot be started"));
  EXPECT_EQ(sweep("pbs").code, 2);
  EXPECT_EQ(sweep("template:srun").code, 2);
}

}  // namespace
