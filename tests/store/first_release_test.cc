// A database that the first release wrote (tests/data/store/schema_1.db) stays readable, and can be written on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "harness/store/store.h"
#include "tests/testing/test_data.h"

namespace harness {
namespace {

namespace fs = std::filesystem;

class FirstReleaseDatabase : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "first_release_" + std::to_string(::getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(directory_);
    fs::copy_file(fs::path(testing_support::test_data()) / "store" / "schema_1.db",
                  fs::path(directory_) / "results.db");
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string directory_;
};

TEST_F(FirstReleaseDatabase, OpensWithEveryCaseAsItWasWritten) {
  Store store = Store::open(directory_);
  const SweepRecord sweep = store.read_sweep();
  EXPECT_EQ(sweep.name, "first release");
  EXPECT_EQ(sweep.spec_hash.empty(), false);
  ASSERT_EQ(sweep.axes.size(), 2u);
  EXPECT_THAT(sweep.axes[0].second, testing::ElementsAre("root", "block"));

  const auto cases = store.read_cases(Store::Detail::kAll);
  ASSERT_EQ(cases.size(), 4u);
  EXPECT_EQ(cases[0].status, Status::kOom);
  EXPECT_FALSE(cases[0].step_ns.has_value());
  EXPECT_EQ(cases[0].peak_cause, "root, backward, activations");
  EXPECT_EQ(cases[2].id, "llama-block-683937082abc");
  EXPECT_EQ(cases[2].status, Status::kOk);
  EXPECT_EQ(cases[3].status, Status::kNearOom);
  EXPECT_EQ(cases[2].step_ns, 3'597'435);
  EXPECT_EQ(cases[2].peak_bytes, 333'384);
  EXPECT_EQ(cases[2].units, 3);
  EXPECT_EQ(cases[2].samples.size(), 3u);
  EXPECT_EQ(cases[2].unit_table.at(1).name, "model.layers.0");
  EXPECT_TRUE(cases[2].emulated);
  ASSERT_TRUE(cases[2].partition.has_value());
  EXPECT_EQ(sum(*cases[2].partition), 1'933'984);
  EXPECT_EQ(cases[2].traced_step_ns, 1'933'984);
  EXPECT_EQ(cases[2].spans.size() + cases[3].spans.size(), 135u);
}

TEST_F(FirstReleaseDatabase, TakesFurtherCases) {
  Store store = Store::open_for_writing(directory_);
  CaseRecord fresh;
  fresh.id = "llama-sublayer-000000000001";
  fresh.status = Status::kCrashed;
  fresh.reason = "rank 0 ended by signal 11";
  store.write_case(fresh);
  const auto cases = store.read_cases();
  ASSERT_EQ(cases.size(), 5u);
  EXPECT_EQ(cases[4].reason, "rank 0 ended by signal 11");
  EXPECT_EQ(cases[2].step_ns, 3'597'435);
}

}  // namespace
}  // namespace harness
