// A sweep that revision 0f9813b stored, when settings were texts and their files were opened again and again: its case
// ids stay, it resumes without running anything, and it compares. And what this revision stores needs no file any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fsdp/core/errors.h"
#include "harness/advise/compare.h"
#include "harness/advise/recommend.h"
#include "harness/sweep/runner.h"
#include "tests/testing/test_data.h"

namespace harness {
namespace {

namespace fs = std::filesystem;

class FormerRevision : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    const fs::path here =
        fs::path(testing::TempDir()) /
        ("former_" + std::to_string(::getpid()) + "_" + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(here);
    fs::copy(fs::path(testing_support::test_data()) / "store" / "revision_0f9813b", here, fs::copy_options::recursive);
    fs::current_path(here);
  }
  void TearDown() override {
    const fs::path here = fs::current_path();
    fs::current_path(before_);
    fs::remove_all(here);
  }
  static void forget_files() {
    for (const char* file : {"units.yaml", "order.txt", "machine.yaml", "tiny"}) fs::remove_all(file);
  }
  // Every case of the spec, the trials counted.
  SweepProgress sweep(const SweepSpec& spec, const std::string& directory) {
    SweepOptions options;
    options.directory = directory;
    return run_sweep(spec, options,
                     [&](const CaseSettings& c, const CasePlan&) {
                       ++runs_;
                       CaseRecord r;
                       r.status = Status::kOk;
                       r.samples = {1'000'000, 1'000'000, 1'000'000};
                       r.step_ns = r.step_ci_low_ns = r.step_ci_high_ns = 1'000'000 + c.forward_prefetch;
                       r.peak_bytes = 1'000;
                       return r;
                     })
        .progress;
  }
  static Side side(const std::string& directory) {
    Store store = Store::open(directory);
    return {directory, directory, store.read_sweep(), store.read_cases()};
  }
  int runs_ = 0;
  fs::path before_;
};

TEST_F(FormerRevision, CaseIdsAndTextsAreWhatTheyWere) {
  std::ifstream table("case_ids.tsv");
  int rows = 0;
  for (std::string name, text, canonical, id; std::getline(table, name, '\t') && std::getline(table, text, '\t') &&
                                              std::getline(table, canonical, '\t') && std::getline(table, id);
       ++rows) {
    CaseSettings c;
    apply_setting(c, name, text);
    EXPECT_EQ(setting_text(c, name), canonical) << name << " " << text;
    EXPECT_EQ(case_id(c), id) << name << " " << text;
    FileTexts files(files_of(c));
    EXPECT_EQ(case_id(settings_from(all_settings(c), files)), id) << name << " " << text;
  }
  EXPECT_EQ(rows, 71);
}

TEST_F(FormerRevision, ItsSweepGoesOnWithoutATrialAndCompares) {
  const SweepSpec spec = read_spec("spec.yaml");
  const Side stored = side(".");
  const auto cases = expand(spec);
  ASSERT_EQ(cases.size(), stored.cases.size());
  ASSERT_EQ(cases.size(), 10u);
  Side now = stored;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(cases[i].id, stored.cases[i].id);
    EXPECT_EQ(cases[i].config_error, "");
    now.cases[i].settings = all_settings(cases[i].settings);
  }
  EXPECT_EQ(sweep(spec, ".").finished, 10u);
  EXPECT_EQ(runs_, 0);
  const Comparison c = compare(stored, now, {});
  EXPECT_TRUE(c.unlike.empty());
  EXPECT_THAT(c.only_a, testing::IsEmpty());
  ASSERT_EQ(c.cases.size(), 10u);
  for (const ComparedCase& one : c.cases) EXPECT_EQ(one.effect.verdict, Verdict::kSame) << one.label;
  EXPECT_EQ(recommend(stored.cases, {}).size(), 2u) << "two optimizers, two jobs";
}

TEST_F(FormerRevision, FilesThatAreGoneAreNotMissed) {
  sweep(read_spec("spec.yaml"), "new");
  EXPECT_EQ(runs_, 10);
  const Side before = side("new");
  std::vector<std::string> policies;
  for (const CaseRecord& r : before.cases) policies.push_back(fsdp2_snippet(policy_of(settings_of(r))));
  forget_files();

  const Side after = side("new");
  for (std::size_t i = 0; i < after.cases.size(); ++i) {
    const CaseSettings c = settings_of(after.cases[i]);
    EXPECT_EQ(case_id(c), after.cases[i].id);
    EXPECT_EQ(fsdp2_snippet(policy_of(c)), policies[i]);
  }
  const Comparison c = compare(before, after, {});
  EXPECT_TRUE(c.unlike.empty());
  EXPECT_EQ(c.cases.size(), 10u);
  EXPECT_EQ(parse_side("new:wrap=plan:units.yaml", false).selected.front().second, "plan:units.yaml");

  const SweepSpec spec = read_spec("spec.yaml", FileTexts({}, after.sweep.files));
  EXPECT_EQ(sweep(spec, "new").finished, 10u);
  EXPECT_EQ(runs_, 10) << "nothing runs again";
  EXPECT_THROW(read_spec("spec.yaml"), fsdp::ConfigError) << "a new sweep cannot be made without them";
}

TEST_F(FormerRevision, AFileThatHasChangedIsAnotherSpec) {
  sweep(read_spec("spec.yaml"), "new");
  std::ofstream("units.yaml") << "units:\n  - match: lm_head\n";
  try {
    sweep(read_spec("spec.yaml", FileTexts({}, side("new").sweep.files)), "new");
    FAIL() << "accepted";
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("a file that it names has changed"));
  }
  // What is stored speaks of the file as it was.
  for (const CaseRecord& r : side("new").cases) EXPECT_EQ(case_id(settings_of(r)), r.id);
}

TEST_F(FormerRevision, ASpecMayHoldTheContentsOfItsFiles) {
  std::string text = "base: {wrap: \"plan:mine.yaml\"}\nfiles: {mine.yaml: \"units: [{match: lm_head}]\"}\n";
  const auto cases = expand(parse_spec(text, "s.yaml"));
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(policy_of(cases[0].settings).plan.units.size(), 2u);
}

}  // namespace
}  // namespace harness
