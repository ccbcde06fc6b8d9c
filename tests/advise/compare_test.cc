#include "harness/advise/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "fsdp/core/errors.h"
#include "harness/sweep/settings.h"

namespace harness {
namespace {

using fsdp::Nanos;
using testing::HasSubstr;
using Choice = std::vector<std::pair<std::string, std::string>>;

CaseRecord made(const Choice& choice, Nanos step, int samples = 9) {
  CaseSettings c;
  CaseRecord r;
  for (const auto& [name, value] : choice) apply_setting(c, name, value);
  r.id = case_id(c);
  r.settings = all_settings(c);
  r.axes = choice;
  r.status = Status::kOk;
  for (int i = 0; i < samples; ++i) r.samples.push_back(step + step * (i - samples / 2) / 1000);
  r.step_ns = step;
  r.environment = {{"cpu", "one"}, {"cores", "2"}, {"git_revision", "abc"}, {"host", "here"}};
  return r;
}

Side side(const std::string& name, std::vector<CaseRecord> cases) {
  Side s;
  s.name = s.origin = name;
  s.cases = std::move(cases);
  return s;
}

std::string unlike_fields(const Comparison& c) {
  std::string out;
  for (const FieldDifference& d : c.unlike) out += d.field + "(" + d.a + "," + d.b + ") ";
  return out;
}

TEST(Compare, MatchingCasesGetAVerdictEach) {
  const Side a = side("a", {made({{"wrap", "root"}}, 1'000'000), made({{"wrap", "block"}}, 1'000'000),
                            made({{"wrap", "sublayer"}}, 1'000'000)});
  const Side b = side("b", {made({{"wrap", "sublayer"}}, 900'000), made({{"wrap", "root"}}, 1'000'500),
                            made({{"wrap", "block"}}, 1'100'000)});
  const Comparison c = compare(a, b, {});
  ASSERT_EQ(c.cases.size(), 3u);
  EXPECT_EQ(c.cases[0].effect.verdict, Verdict::kSame);
  EXPECT_EQ(c.cases[1].effect.verdict, Verdict::kSlower);
  EXPECT_EQ(c.cases[2].effect.verdict, Verdict::kFaster);
  EXPECT_FALSE(c.negative());
}

TEST(Compare, AGateFailsOnASureSlowdownBeyondItAndOnACaseThatNoLongerRuns) {
  CompareOptions options;
  options.gate = 0.05;
  const Side a = side("a", {made({}, 1'000'000)});
  EXPECT_TRUE(compare(a, side("b", {made({}, 1'100'000)}), options).negative());
  EXPECT_FALSE(compare(a, side("b", {made({}, 1'030'000)}), options).negative());
  CaseRecord gone = made({}, 1'000'000);
  gone.status = Status::kOom;
  const Comparison lost = compare(a, side("b", {gone}), options);
  EXPECT_TRUE(lost.negative());
  EXPECT_EQ(lost.cases.at(0).note, "ok against oom");
}

CaseRecord with_losses(Choice choice, Nanos step, double factor, double norm_factor) {
  CaseRecord r = made(choice, step);
  for (int i = 0; i < 5; ++i) r.losses.push_back((6.0 - 0.1 * i) * factor), r.grad_norms.push_back(1.5 * norm_factor);
  return r;
}

TEST(Compare, RunsThatDidNotComputeTheSameSayThatFirstAndEndAsUnlikeOnes) {
  const Side a = side("a", {with_losses({}, 1'000'000, 1, 1)});
  const Comparison c = compare(a, side("b", {with_losses({}, 1'100'000, 1.07, 2)}), {});
  EXPECT_TRUE(c.negative());
  EXPECT_EQ(c.numerics_differ, 1u);
  const std::string text = comparison_text(c, a, side("b", {with_losses({}, 1'100'000, 1.07, 2)}), {});
  EXPECT_LT(text.find("NUMBERS DIFFER in 1 of 1 cases"), text.find("slower"));
  EXPECT_THAT(text, HasSubstr("loss differs by 6.5 %"));
  const Comparison norms = compare(a, side("b", {with_losses({}, 1'000'000, 1, 2)}), {});
  EXPECT_TRUE(norms.negative());
  EXPECT_THAT(numerics_text(norms), HasSubstr("gradient norm differs by 50 % at step 0: 1.5 against 3"));
  CaseRecord broken = with_losses({}, 1'000'000, 1, 1);
  broken.losses[3] = std::nan("");
  EXPECT_THAT(numerics_text(compare(a, side("b", {broken}), {})),
              HasSubstr("loss differs in being a number at step 3"));
}

TEST(Compare, RoundingIsNoDifferenceAndArmsThatComputeSomethingElseGetANote) {
  const Side a = side("a", {with_losses({}, 1'000'000, 1, 1)});
  EXPECT_FALSE(compare(a, side("b", {with_losses({}, 1'000'000, 1 + 1e-5, 1 + 1e-4)}), {}).negative());
  const Choice half = {{"param_dtype", "bf16"}};
  EXPECT_FALSE(compare(side("a", {with_losses(half, 1'000'000, 1, 1)}),
                       side("b", {with_losses(half, 1'000'000, 1.01, 1.05)}), {})
                   .negative());
  CompareOptions options;
  options.allow = {"seed"};
  const Comparison arms = compare(a, side("b", {with_losses({{"seed", "1"}}, 1'000'000, 1.07, 2)}), options);
  EXPECT_FALSE(arms.negative());
  EXPECT_THAT(arms.notes, testing::Contains(HasSubstr("losses differ, as they may where seed does")));
  CaseRecord both = with_losses({}, 1'000'000, 1, 1);
  both.losses[1] = std::nan("");
  EXPECT_FALSE(compare(side("a", {both}), side("b", {both}), {}).negative());
}

TEST(Compare, ChangesOfStatusStandFirstCountedAndNoLineIsWide) {
  std::vector<CaseRecord> before, after;
  for (int i = 0; i < 144; ++i) {
    const Choice choice = {{"seed", std::to_string(i)},
                           {"set", "layers=8,dim=256,heads=8,kv_heads=8,ffn=688,vocab=4096"},
                           {"wrap", "class:LlamaDecoderLayer,Embedding,Linear"},
                           {"backward_prefetch", "pre"}};
    before.push_back(made(choice, 1'000'000)), after.push_back(made(choice, 1'000'000));
    before.back().status = Status::kOom;
    before.back().reason = "no room";
  }
  before.push_back(made({{"seed", "999"}}, 1'000'000)), after.push_back(made({{"seed", "999"}}, 1'000'000));
  after.back().status = Status::kTimeout;
  const Choice wide = {{"set", "layers=8,dim=256,heads=8,kv_heads=8,ffn=688,vocab=4096"},
                       {"wrap", "class:LlamaDecoderLayer,Embedding,Linear"},
                       {"reshard_after_forward", "false"}};
  before.push_back(made(wide, 1'000'000)), after.push_back(made(wide, 1'000'000));
  const Side a = side("out/before", before), b = side("out/after", after);
  const std::string text = comparison_text(compare(a, b, {}), a, b, {});
  const auto lost = text.find("1 case lost, measured in A and not in B (1 ok -> timeout): seed=999");
  const auto rescued = text.find("144 cases rescued, measured in B and not in A (144 oom -> ok)");
  EXPECT_NE(lost, std::string::npos) << text;
  EXPECT_LT(lost, rescued) << text;
  EXPECT_LT(rescued, text.find("1 same")) << text;
  EXPECT_EQ(text.find("not compared"), std::string::npos);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Compare, AGateIsNotPassedWhereTooFewSamplesLookSlower) {
  CompareOptions options;
  options.gate = 0.03;
  const Side a = side("a", {made({{"wrap", "root"}}, 1'000'000, 5), made({{"wrap", "block"}}, 1'000'000, 5)});
  const auto against = [&](Nanos root, Nanos block, int samples = 5) {
    const Side b = side("b", {made({{"wrap", "root"}}, root, samples), made({{"wrap", "block"}}, block, samples)});
    const Comparison c = compare(a, b, options);
    return std::pair(c.negative(), comparison_text(c, a, b, options));
  };
  const auto [negative, text] = against(1'000'000, 1'500'000);
  EXPECT_TRUE(negative);
  EXPECT_THAT(text, HasSubstr("gate of 3.0 %: not decided: 1 case slower by more than that has fewer than six pairs or "
                              "samples;\n      give repeat: {min: 6}"));
  EXPECT_THAT(text, HasSubstr("GATE NOT DECIDED"));
  EXPECT_THAT(text, testing::Not(HasSubstr("passed")));
  EXPECT_THAT(against(1'500'000, 1'500'000).second, HasSubstr("not decided: 2 cases slower by more than that have"));
  EXPECT_FALSE(against(1'020'000, 900'000).first) << "nothing looks slower by more";
  EXPECT_TRUE(against(1'000'000, 1'500'000, 2).first) << "unknown";
  options.gate = -1;
  EXPECT_FALSE(against(1'000'000, 1'500'000).first) << "no gate";
}

TEST(Compare, UnlikeRunsAreRefusedWithTheFieldsAndWithoutANumber) {
  const Side a = side("a", {made({{"batch", "1"}}, 1'000'000)});
  const Comparison batch = compare(a, side("b", {made({{"batch", "2"}}, 2'000'000)}), {});
  EXPECT_TRUE(batch.cases.empty());
  EXPECT_EQ(unlike_fields(batch), "batch(1,2) ");
  EXPECT_TRUE(batch.negative());
  CaseRecord other = made({{"batch", "1"}}, 1'000'000);
  other.environment["cpu"] = "another";
  other.emulated = true;
  EXPECT_EQ(unlike_fields(compare(a, side("b", {other}), {})), "cpu(one,another) emulated(false,true) ");
  other = made({{"batch", "1"}}, 1'000'000);
  other.environment.erase("cores");
  EXPECT_EQ(unlike_fields(compare(a, side("b", {other}), {})), "cores(2,absent) ") << "missing counts as different";
}

TEST(Compare, WhatShouldBeEqualWarnsAndWhatInformsDoesNot) {
  const Side a = side("a", {made({}, 1'000'000)});
  CaseRecord other = made({}, 1'000'000);
  other.environment["git_revision"] = "def";
  other.environment["host"] = "there";
  other.warnings = {"throttled for 20 ms"};
  const Comparison c = compare(a, side("b", {other}), {});
  EXPECT_TRUE(c.unlike.empty());
  ASSERT_EQ(c.warnings.size(), 2u);
  EXPECT_EQ(c.warnings[0].field, "git_revision");
  EXPECT_EQ(c.warnings[1].field, "throttled");
}

TEST(Compare, ArmsOfOneInterleavedSweepAreComparedPairByPair) {
  Side all =
      side("dir", {made({{"backward_prefetch", "none"}}, 1'000'000), made({{"backward_prefetch", "pre"}}, 1'000'000)});
  for (CaseRecord& c : all.cases) c.environment["interleaved"] = "9";
  for (int i = 0; i < 9; ++i) {  // the machine drifts by 30 %, the arms stay 10 % apart
    all.cases[0].samples[static_cast<std::size_t>(i)] = 1'000'000 + 40'000 * i;
    all.cases[1].samples[static_cast<std::size_t>(i)] = (1'000'000 + 40'000 * i) * 9 / 10;
  }
  Side a = all, b = all;
  CompareOptions options;
  select_cases(a, {"dir", {{"backward_prefetch", "none"}}});
  select_cases(b, {"dir", {{"backward_prefetch", "pre"}}});
  options.allow = {"backward_prefetch"};
  const Comparison c = compare(a, b, options);
  ASSERT_EQ(c.cases.size(), 1u);
  EXPECT_TRUE(c.cases[0].effect.interleaved);
  EXPECT_EQ(c.cases[0].effect.verdict, Verdict::kFaster);
  EXPECT_NEAR(c.cases[0].effect.effect, -0.1, 1e-3);
  b.origin = "elsewhere";
  EXPECT_EQ(compare(a, b, options).cases.at(0).effect.verdict, Verdict::kAmbiguous) << "unpaired, the drift hides it";
}

TEST(Compare, SeveralCasesForOneKeyAskForASelection) {
  const Side a = side("dir", {made({{"wrap", "root"}}, 1), made({{"wrap", "block"}}, 2)});
  CompareOptions options;
  options.allow = {"wrap"};
  try {
    compare(a, a, options);
    FAIL();
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("differ only in wrap"));
    EXPECT_THAT(e.what(), HasSubstr("dir:wrap=root"));
  }
}

TEST(Compare, ASideIsADirectoryAFileOrASelection) {
  EXPECT_EQ(parse_side("out/a", true).path, "out/a");
  EXPECT_EQ(parse_side("out/a:b=c", true).path, "out/a:b=c") << "it exists under that name";
  const SideName s = parse_side("out/a:wrap=blocks:2,backward_prefetch=none", false);
  EXPECT_EQ(s.path, "out/a");
  EXPECT_EQ(s.selected, (Choice{{"wrap", "blocks:2"}, {"backward_prefetch", "none"}}));
  EXPECT_EQ(parse_side("d:wrap=class:A,B", false).selected, (Choice{{"wrap", "class:A,B"}}));
  EXPECT_THROW(parse_side("d:wrap=nonsense", false), fsdp::ConfigError);
  try {
    parse_side("d:wrp=block", false);
    FAIL();
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("[wrp] unknown setting; nearest: wrap"));
  }
}

TEST(Compare, ABaselineReadsBackToTheSameComparison) {
  Side a = side("a", {made({{"wrap", "root"}}, 1'000'000), made({{"wrap", "block"}}, 2'000'000)});
  a.sweep.environment = {{"kernel", "k"}};
  const std::string text = baseline_json(a);
  EXPECT_TRUE(is_baseline(text));
  const Side back = baseline_from_json(text, "b.json");
  Side b = a;
  const Comparison c = compare(back, b, {});
  ASSERT_EQ(c.cases.size(), 2u);
  EXPECT_TRUE(c.warnings.empty());
  EXPECT_EQ(back.cases[1].samples, a.cases[1].samples);
  for (const std::string& bad :
       {std::string("{"), std::string("{}"), std::string("[1]"), text.substr(0, text.size() / 2)}) {
    try {
      baseline_from_json(bad, "b.json");
      FAIL() << bad.substr(0, 20);
    } catch (const fsdp::ConfigError& e) {
      EXPECT_THAT(e.what(), HasSubstr("[b.json] is not a baseline"));
    }
  }
}

TEST(Compare, ManyCasesSayHowManyFalseDifferencesToExpect) {
  std::vector<CaseRecord> cases;
  for (int i = 1; i <= 40; ++i) cases.push_back(made({{"batch", std::to_string(i)}}, 1'000'000));
  const Comparison c = compare(side("a", cases), side("b", cases), {});
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_THAT(c.notes[0], HasSubstr("40 cases: 2 of them, at most"));
}

// Predictions have one sample each: nothing is called different there, so nothing by chance.
// One value each, and no noise: a gate on predictions is decided.
TEST(Compare, PredictionsHaveASureVerdictWithoutRepetitions) {
  CompareOptions options;
  options.gate = 0.03;
  const auto predicted = [](Nanos step) {
    std::vector<CaseRecord> cases;
    for (int i = 1; i <= 40; ++i) {
      cases.push_back(made({{"batch", std::to_string(i)}}, step, 1));
      cases.back().predicted = true;
    }
    return side("s", std::move(cases));
  };
  const auto against = [&](Nanos step) { return compare(predicted(1'000'000), predicted(step), options); };
  const Comparison slower = against(1'031'000), a_little = against(1'029'000), same = against(1'009'000);
  EXPECT_EQ(slower.cases[0].effect.verdict, Verdict::kSlower);
  EXPECT_NEAR(slower.cases[0].effect.low, 0.031, 1e-9);
  EXPECT_TRUE(slower.gate_failed);
  EXPECT_EQ(slower.gate_undecided, 0u);
  EXPECT_EQ(a_little.cases[0].effect.verdict, Verdict::kSlower);
  EXPECT_FALSE(a_little.negative());
  EXPECT_EQ(same.cases[0].effect.verdict, Verdict::kSame);
  EXPECT_EQ(against(980'000).cases[0].effect.verdict, Verdict::kFaster);
  EXPECT_TRUE(same.notes.empty());
}

TEST(Compare, CasesWithoutASureVerdictAreExpectedToLookLikeNothing) {
  std::vector<CaseRecord> cases;
  for (int i = 1; i <= 40; ++i) {
    cases.push_back(made({{"batch", std::to_string(i)}}, 1'000'000));
    cases.back().samples.resize(1);
  }
  EXPECT_TRUE(compare(side("a", cases), side("b", cases), {}).notes.empty());
}

// Ranks that get unlike amounts of work are another experiment.
TEST(C32, RunsOfAnotherSpreadAreNotCompared) {
  const Side even = side("a", {made({{"world", "2"}, {"batch", "4"}}, 100)});
  for (const Choice& choice :
       {Choice{{"world", "2"}, {"batch", "4"}, {"arrival_skew", "1:8ms"}}, Choice{{"world", "2"}, {"batch", "3"}}}) {
    const Comparison c = compare(even, side("b", {made(choice, 100)}), {});
    ASSERT_EQ(c.unlike.size(), 1u);
    EXPECT_EQ(c.unlike[0].field, choice.back().first);
    EXPECT_TRUE(c.cases.empty());
    EXPECT_TRUE(c.negative());
  }
}

TEST(C07, RunsThatDifferInTheHardwareQueuesAreSaidToBeUnlike) {
  const CaseRecord usual = made({}, 100);
  CaseRecord one_queue = usual;
  one_queue.environment["env.CUDA_DEVICE_MAX_CONNECTIONS"] = "1";
  const Comparison c = compare(side("a", {usual}), side("b", {one_queue}), {});
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_EQ(c.warnings[0].field, "env.CUDA_DEVICE_MAX_CONNECTIONS");
  EXPECT_EQ(c.warnings[0].a, "absent");
  EXPECT_EQ(c.warnings[0].b, "1");
}

}  // namespace
}  // namespace harness
