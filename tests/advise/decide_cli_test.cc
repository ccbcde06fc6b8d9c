// recommend and compare from outside: what they print and how they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/analysis/statistics.h"
#include "harness/store/store.h"
#include "harness/sweep/settings.h"
#include "tests/cli/call.h"

namespace {

using cli_test::call;
using cli_test::Called;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class DecideTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = cli_test::fresh_directory(testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  // A results directory with three wraps, every step time times `factor`.
  std::string results(const std::string& name, double factor, const std::string& batch = "1", int samples = 9) {
    const std::string path = dir_ + "/" + name;
    harness::Store store = harness::Store::open_for_writing(path);
    harness::SweepRecord sweep;
    sweep.name = name;
    sweep.axes = {{"wrap", {"root", "block", "sublayer"}}};
    sweep.environment = {{"cpu", "one"}, {"cores", "2"}};
    store.write_sweep(sweep);
    const std::pair<const char*, double> wraps[] = {{"root", 20e6}, {"block", 10e6}, {"sublayer", 12e6}};
    for (const auto& [wrap, step] : wraps) {
      harness::CaseSettings c;
      harness::apply_setting(c, "wrap", wrap);
      harness::apply_setting(c, "batch", batch);
      harness::CaseRecord r;
      r.id = harness::case_id(c);
      r.settings = harness::all_settings(c);
      r.axes = {{"wrap", wrap}};
      r.status = harness::Status::kOk;
      for (int i = -(samples / 2); i <= samples / 2; ++i)
        r.samples.push_back(static_cast<fsdp::Nanos>(step * factor * (1 + i / 1000.)));
      const harness::SampleSummary s = harness::summarize(r.samples);
      r.step_ns = s.median, r.step_ci_low_ns = s.ci_low, r.step_ci_high_ns = s.ci_high, r.ci_coverage = s.coverage;
      r.peak_bytes = std::string(wrap) == "root" ? 30'000'000 : 20'000'000;
      store.write_case(r);
    }
    return path;
  }
  std::string dir_;
};

TEST_F(DecideTest, RecommendPrintsPythonAndTheFindingsInComments) {
  const Called c = call({"recommend", results("a", 1)});
  EXPECT_EQ(c.code, 0) << c.err;
  EXPECT_THAT(c.out, HasSubstr("#   best       wrap=block"));
  EXPECT_THAT(c.out, HasSubstr("#   runner-up  wrap=sublayer"));
  EXPECT_THAT(c.out, HasSubstr("def apply_policy(model, device_type=\"cuda\"):"));
  EXPECT_THAT(c.out, HasSubstr("f\"model.layers.{i}\""));
  EXPECT_THAT(c.out, HasSubstr("# cliff: wrap: wrap=root is 2.00x slower than wrap=block"));
  EXPECT_THAT(call({"recommend", dir_ + "/a", "--format", "fsdp1"}).out, HasSubstr("def wrap_model(model"));
}

// Of two functions of one name the second would win without a word.
TEST_F(DecideTest, AFileOfPythonHoldsOnePolicy) {
  const std::string dir = results("out", 1);
  {
    harness::Store store = harness::Store::open_for_writing(dir);
    harness::CaseSettings s;
    harness::apply_setting(s, "world", "8");
    harness::CaseRecord r = store.read_cases().front();
    r.id = harness::case_id(s);
    r.settings = harness::all_settings(s);
    store.write_case(r);
  }
  const Called refused = call({"recommend", dir});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, testing::AllOf(HasSubstr("holds 2 workloads"), HasSubstr("--for 'llama, world 2, cpu'"),
                                          HasSubstr("'llama, world 8, cpu'")));
  for (const char* world : {"world 2", "world 8"}) {
    const Called one = call({"recommend", dir, "--for", world});
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_EQ(one.out.find("def apply_policy"), one.out.rfind("def apply_policy"));
    EXPECT_THAT(one.out, HasSubstr(std::string("# llama, ") + world));
  }
  EXPECT_EQ(call({"recommend", dir, "--for", "world 16"}).code, 2);
  EXPECT_EQ(json::parse(call({"recommend", dir, "--format", "json"}).out)["recommendations"].size(), 2u);
}

TEST_F(DecideTest, RecommendEndsWithOneWhenNothingFits) {
  const Called c = call({"recommend", results("a", 1), "--memory", "1MiB"});
  EXPECT_EQ(c.code, 1);
  EXPECT_THAT(c.out, HasSubstr("nothing fits"));
  EXPECT_THAT(c.out, Not(HasSubstr("def apply_policy")));
}

TEST_F(DecideTest, RecommendAsJsonHoldsBothSnippets) {
  const json j = json::parse(call({"recommend", results("a", 1), "--memory", "25MB", "--format", "json"}).out);
  const json& r = j["recommendations"][0];
  EXPECT_EQ(r["best"]["label"], "wrap=block");
  EXPECT_EQ(r["runners_up"].size(), 1u);
  EXPECT_EQ(r["memory_bytes"], 25'000'000);
  EXPECT_THAT(r["fsdp2"].get<std::string>(), HasSubstr("fully_shard"));
  EXPECT_THAT(r["fsdp1"].get<std::string>(), HasSubstr("FullyShardedDataParallel"));
}

TEST_F(DecideTest, BadInputEndsWithTwoAndOneSentence) {
  const std::string a = results("a", 1);
  const std::vector<std::vector<std::string>> bad = {{"recommend", dir_ + "/absent"},
                                                     {"recommend", a, "--memory", "much"},
                                                     {"recommend", a, "--format", "fsdp3"},
                                                     {"recommend", a, "--margin", "200%"},
                                                     {"compare", a},
                                                     {"compare", a, dir_ + "/absent"},
                                                     {"compare", a, a, "--gate", "x"},
                                                     {"compare", a + ":wrap=nonsense", a},
                                                     {"compare", a + ":batch=7", a}};
  cli_test::write_file(dir_ + "/no.json", "{\"a\": 1}");
  for (auto arguments : bad) {
    const Called c = call(arguments);
    EXPECT_EQ(c.code, 2) << arguments.back() << c.out;
    EXPECT_EQ(std::count(c.err.begin(), c.err.end(), '\n'), 1) << c.err;
  }
  EXPECT_EQ(call({"compare", a, dir_ + "/no.json"}).code, 2);
}

TEST_F(DecideTest, CompareGivesVerdictsAndTheGateDecidesTheExitCode) {
  const std::string a = results("a", 1), b = results("b", 1.1), same = results("same", 1.001);
  const Called c = call({"compare", a, b});
  EXPECT_EQ(c.code, 0);
  EXPECT_THAT(c.out, HasSubstr("3 slower"));
  EXPECT_EQ(call({"compare", a, b, "--gate", "5%"}).code, 1);
  EXPECT_EQ(call({"compare", a, b, "--gate", "20"}).code, 0);
  EXPECT_EQ(call({"compare", a, same, "--gate", "1%"}).code, 0);
  const json j = json::parse(call({"compare", a, b, "--gate", "5%", "--json"}).out);
  EXPECT_EQ(j["comparability"], "comparable");
  EXPECT_EQ(j["gate_failed"], true);
  EXPECT_EQ(j["cases"][1]["verdict"], "slower");
}

TEST_F(DecideTest, AGateOfTooFewSamplesEndsAsAFailedOneAndSaysWhatWouldDecideIt) {
  const std::string a = results("a", 1, "1", 5), b = results("b", 1.5, "1", 5);
  const Called c = call({"compare", a, b, "--gate", "3%"});
  EXPECT_EQ(c.code, 1);
  EXPECT_THAT(c.out, HasSubstr("not decided: 3 cases slower by more than that have fewer than six pairs or samples"));
  EXPECT_EQ(json::parse(call({"compare", a, b, "--gate", "3%", "--json"}).out)["gate_undecided"], 3);
  EXPECT_EQ(call({"compare", a, b}).code, 0);
  EXPECT_EQ(call({"compare", b, a, "--gate", "3%"}).code, 0) << "faster";
  EXPECT_THAT(call({"compare", "--help"}).out, HasSubstr("six pairs or samples"));
}

TEST_F(DecideTest, CompareWritesAPageAndEndsAsWithoutOne) {
  const std::string a = results("a", 1), b = results("b", 1.1), page = dir_ + "/comparison.html";
  const Called c = call({"compare", a, b, "--gate", "5%", "-o", page});
  EXPECT_EQ(c.code, 1);
  EXPECT_THAT(c.out, testing::EndsWith(page + "\n"));
  EXPECT_THAT(cli_test::read_file(page), HasSubstr("<title>Comparison: "));
  EXPECT_EQ(call({"compare", a, b, "-o", dir_ + "/absent/page.html"}).code, 2);
}

TEST_F(DecideTest, CompareRefusesUnlikeRunsAndNamesTheFields) {
  const Called c = call({"compare", results("a", 1), results("b", 1, "2")});
  EXPECT_EQ(c.code, 1);
  EXPECT_THAT(c.out, HasSubstr("batch: 1 against 2"));
  EXPECT_THAT(c.out, Not(HasSubstr("%")));
  EXPECT_EQ(call({"compare", dir_ + "/a", dir_ + "/b", "--allow", "batch"}).code, 0);
}

TEST_F(DecideTest, ACommittedBaselineIsASideLikeAnyOther) {
  const std::string a = results("a", 1), b = results("b", 1.1), file = dir_ + "/baseline.json";
  EXPECT_EQ(call({"compare", a, "--write-baseline", file}).code, 0);
  EXPECT_EQ(call({"compare", file, b, "--gate", "5%"}).code, 1);
  EXPECT_EQ(call({"compare", file, a, "--gate", "5%"}).code, 0);
  EXPECT_EQ(call({"compare", file, a + "/results.db"}).code, 0);
}

}  // namespace
