#include "reports/findings.h"

#include <gtest/gtest.h>

#include "harness/advise/findings.h"
#include "reports/html.h"
#include "tests/reports/handmade.h"

namespace {

using handmade::granularity;
using reports::find;
using reports::Findings;
using reports::plain;
using reports::ReportInput;
using reports::shape_of;

Findings findings_of(const ReportInput& in) {
  const auto shape = shape_of(in);
  return find(in, shape, shape.workloads.at(0));
}

// A line of cases with the given step times, each interval 1 % to both sides.
ReportInput line(const std::vector<fsdp::Nanos>& steps_ms) {
  ReportInput in;
  std::vector<std::string> values;
  for (std::size_t i = 0; i < steps_ms.size(); ++i) {
    values.push_back("size:" + std::to_string(i));
    in.cases.push_back(handmade::ran({{"wrap", values.back()}}, static_cast<std::int64_t>(i + 1), steps_ms[i], 100));
  }
  in.sweep.axes = {{"wrap", values}};
  return in;
}

std::string cliffs(const ReportInput& in) {
  std::string out;
  for (const auto& s : findings_of(in).steps) out += s.cliff ? 'x' : '.';
  return out;
}

TEST(Answers, HowToWrapNamesTheBestWithItsGainOverDefaultAndSlowest) {
  const Findings f = findings_of(granularity());
  EXPECT_EQ(f.best, 3u);
  EXPECT_EQ(f.standard, 3u);
  EXPECT_EQ(f.worst, 0u);
  EXPECT_EQ(plain(f.wrap.sentence),
            "With block, backward prefetch pre (9 units; peak 320 MiB, 80 % of the 400 MiB budget): 10.0 ms per step; "
            "that is the "
            "default; the slowest that fits (sublayer, backward prefetch none) takes 3.00x as long.");
}

TEST(Answers, TheGainOverTheDefaultIsTold) {
  auto in = granularity();
  in.cases[2].step_ns = 8 * handmade::kMs;
  in.cases[2].step_ci_high_ns = 8 * handmade::kMs;
  const Findings f = findings_of(in);
  EXPECT_EQ(f.best, 2u);
  EXPECT_NE(plain(f.wrap.sentence)
                .find("8.00 ms per step, 20 % less than the default (block, backward prefetch pre, 10.0 ms per step)"),
            std::string::npos)
      << plain(f.wrap.sentence);
  ASSERT_EQ(f.wrap.notes.size(), 1u);
  EXPECT_EQ(plain(f.wrap.notes[0]), "Confidence: low (0 samples).");
}

TEST(Answers, IntervalsThatMeetProveNoGain) {
  auto in = granularity();
  in.cases[2].step_ns = 9'950'000;
  in.cases[2].step_ci_high_ns = 10'050'000;
  const Findings f = findings_of(in);
  ASSERT_EQ(f.wrap.notes.size(), 2u);
  EXPECT_EQ(plain(f.wrap.notes[0]), "The intervals of the best and the default meet: the gain is not proven.");
}

TEST(Answers, OfEquallyFastCasesTheSmallestIsRecommendedAndTheFasterIsTold) {
  auto in = granularity();
  in.cases[2].step_ns = 10'050'000;
  in.cases[2].step_ci_low_ns = 9'990'000;
  const Findings f = findings_of(in);
  EXPECT_EQ(f.best, 2u);
  EXPECT_NE(plain(f.wrap.notes.at(0))
                .find("block, backward prefetch pre is no better (10.0 ms per step) though its "
                      "time is shorter: it is as fast within the noise, and takes 20"),
            std::string::npos)
      << plain(f.wrap.notes.at(0));
}

TEST(Answers, TheFrontHoldsWhatNoCaseBeatsInBothTimeAndPeak) {
  EXPECT_EQ(findings_of(granularity()).pareto, (std::vector<std::size_t>{3, 2, 1, 0}));
}

TEST(Answers, ASettingThatCannotBeReadStillGivesAnAnswer) {
  auto in = granularity();
  for (auto& c : in.cases) c.settings.back().second = "a lot";
  EXPECT_EQ(findings_of(in).best, 3u);
}

TEST(Answers, ADefaultThatFailedOrIsMissingIsSaid) {
  auto in = granularity();
  in.cases[3] = handmade::failed(in.cases[3].axes, 9, harness::Status::kTimeout);
  EXPECT_NE(plain(findings_of(in).wrap.sentence).find("; the default (block, backward prefetch pre) ended as timeout"),
            std::string::npos);
  in.cases.erase(in.cases.begin() + 3);
  EXPECT_NE(plain(findings_of(in).wrap.sentence).find("; the default (block, pre) is not in this sweep"),
            std::string::npos);
}

// "block/pre/reshard=false" was called the default where the sweep does not offer reshard_after_forward auto.
TEST(Answers, WhatDepartsFromTheDefaultIsNotCalledIt) {
  auto in = granularity();
  in.sweep.axes.push_back({"reshard_after_forward", {"true", "false"}});
  const auto cases = in.cases;
  in.cases.clear();
  for (const char* value : {"true", "false"})
    for (harness::CaseRecord c : cases) {
      c.axes.emplace_back("reshard_after_forward", value);
      c.settings.insert(c.settings.begin(), {"reshard_after_forward", value});
      if (c.step_ns && std::string(value) == "true")
        for (auto* ns : {&c.step_ns, &c.step_ci_low_ns, &c.step_ci_high_ns}) *ns = **ns * 2;
      in.cases.push_back(c);
    }
  EXPECT_NE(plain(findings_of(in).wrap.sentence).find("; that is the default but for reshard after forward false;"),
            std::string::npos)
      << plain(findings_of(in).wrap.sentence);
  in.cases[8].step_ns = in.cases[8].step_ci_high_ns = in.cases[8].step_ci_low_ns = 8 * handmade::kMs;  // no prefetch
  EXPECT_NE(plain(findings_of(in).wrap.sentence).find("20 % less than the nearest to the default (block"),
            std::string::npos)
      << plain(findings_of(in).wrap.sentence);
}

TEST(Answers, AFasterCaseNearOutOfMemoryIsANoteAndNotTheAnswer) {
  auto in = granularity();
  in.cases[2].status = harness::Status::kNearOom;
  in.cases[2].reason = "peak is 97 % of the budget";
  in.cases[2].step_ns = 7 * handmade::kMs;
  const Findings f = findings_of(in);
  EXPECT_EQ(f.best, 3u);
  ASSERT_EQ(f.wrap.notes.size(), 2u);
  EXPECT_EQ(plain(f.wrap.notes[0]),
            "block, backward prefetch none is faster still (7.00 ms per step) but ran near the limit: peak is 97 % of "
            "the budget");
}

TEST(Answers, ABestThatIsSlowerThanADefaultNearOutOfMemorySaysSo) {
  auto in = granularity();
  in.cases[3].status = harness::Status::kNearOom;
  const Findings f = findings_of(in);
  EXPECT_EQ(f.best, 2u);
  EXPECT_NE(plain(f.wrap.sentence).find("20 % more than the default"), std::string::npos) << plain(f.wrap.sentence);
  EXPECT_EQ(f.wrap.notes.size(), 2u);
}

TEST(Answers, AnOutOfMemoryCaseWithoutAPeakStillTellsItsCauseAndReason) {
  auto in = granularity();
  in.cases[5].peak_bytes.reset();
  const Findings f = findings_of(in);
  EXPECT_NE(plain(f.fit.sentence)
                .find("runs out of memory at model, forward, unsharded parameters, under a budget of 400 MiB."),
            std::string::npos)
      << plain(f.fit.sentence);
  EXPECT_EQ(plain(f.fit.notes.at(0)), "no room");
}

TEST(Answers, WhySlowNamesTheClassThatGrewMost) {
  auto in = granularity();
  in.cases[0].unit_table.resize(17);
  in.cases[0].unit_table[4].name = "model.layers.1.mlp";
  in.cases[0].partition_details = {{harness::PartitionClass::kHost, 3, fsdp::Pass::kForward, {}, 5 * handmade::kMs},
                                   {harness::PartitionClass::kHost, 4, fsdp::Pass::kBackward, {}, 8 * handmade::kMs}};
  const Findings f = findings_of(in);
  // Host +13, exposed forward +2, backward +2, reduce-scatter +1, copy +1, compute and overlapped together +1: 20 in
  // all.
  EXPECT_EQ(plain(f.slow.sentence),
            "sublayer, backward prefetch none (17 units) runs at 30.0 ms per step against 10.0 ms per step for the "
            "best, because of "
            "host (+13.0 ms, 65 % of what grew; host-bound: the host issues work more slowly than the device is done "
            "with it; merge units); its largest part is at "
            "model.layers.1.mlp, backward (8.00 ms of 13.0 ms).");
}

TEST(Answers, WhySlowComparesWithAFasterCaseNearOutOfMemory) {
  auto in = granularity();
  in.cases[3].status = harness::Status::kNearOom;
  EXPECT_EQ(
      plain(findings_of(in).slow.sentence)
          .find("sublayer, backward prefetch none (17 units) runs at 30.0 ms per step against 10.0 ms per step for "
                "block, backward prefetch pre (near out of memory), because of host"),
      0u)
      << plain(findings_of(in).slow.sentence);
}

TEST(Answers, BelowHalfTheCauseIsAMix) {
  auto in = granularity();
  handmade::trace(in.cases[0], {2, 5, 8, 8, 2, 0, 1, 2, 0, 2, 0});
  EXPECT_NE(plain(findings_of(in).slow.sentence)
                .find("because of a mix of exposed all-gather, backward (+8.00 ms, 40 % of what grew) and exposed "
                      "all-gather, forward "
                      "(+7.00 ms, 35 % of what grew)"),
            std::string::npos)
      << plain(findings_of(in).slow.sentence);
}

TEST(Answers, NothingIsSlowWithinFivePercent) {
  EXPECT_EQ(plain(findings_of(line({100, 104})).slow.sentence),
            "Nothing is slow: the slowest, size:1, takes only 4.0 % more than the best.");
}

TEST(Answers, WhereItStopsFittingNamesBothSidesOfTheEdge) {
  const Findings f = findings_of(granularity());
  EXPECT_EQ(plain(f.fit.sentence),
            "block, backward prefetch pre (9 units) still fits (peak 320 MiB, 80 % of the 400 MiB budget); root, "
            "backward prefetch "
            "pre (1 unit) runs out of memory at model, forward, unsharded parameters, with 448 MiB in use of a budget "
            "of 400 MiB.");
  ASSERT_EQ(f.boundaries.size(), 2u);
  EXPECT_FALSE(f.boundaries[0].violated);
}

TEST(Answers, EverythingFitsIsAnAnswer) {
  EXPECT_EQ(plain(findings_of(line({100, 104})).fit.sentence),
            "Nowhere in this sweep: the largest peak is that of size:0, 100 MiB, 25 % of the 400 MiB budget.");
}

TEST(Answers, NoCaseThatRanIsAnAnswer) {
  ReportInput in;
  in.sweep.axes = {{"wrap", {"block"}}};
  in.cases = {handmade::failed({{"wrap", "block"}}, 9, harness::Status::kCrashed)};
  const Findings f = findings_of(in);
  EXPECT_EQ(plain(f.wrap.sentence), "No case ran to its end, so there is nothing to recommend.");
  EXPECT_EQ(plain(f.slow.sentence), "Fewer than two cases ran to their end, so there is nothing to compare.");
  EXPECT_EQ(plain(f.fit.sentence), "No case ran to its end, so no peak is known.");
}

TEST(Answers, CasesOfDifferentWorkAreRankedPerToken) {
  auto in = line({10, 15});
  in.cases[0].settings.emplace_back("batch", "1");
  in.cases[1].settings.emplace_back("batch", "2");
  in.cases[0].tokens_per_s = 1000.0;
  in.cases[1].tokens_per_s = 1333.0;
  const Findings f = findings_of(in);
  EXPECT_TRUE(f.per_token);
  EXPECT_EQ(f.best, 1u);
  EXPECT_NE(plain(f.wrap.sentence).find("1,333 tokens/s"), std::string::npos);
}

TEST(Boundary, SomethingThatFitsBeyondIsAViolation) {
  auto in = line({100, 100, 100});  // finer from left to right
  in.cases[1] = handmade::failed(in.cases[1].axes, 2, harness::Status::kOom);
  const Findings f = findings_of(in);
  ASSERT_EQ(f.boundaries.size(), 1u);
  EXPECT_EQ(f.boundaries[0].last_fit, 2u);
  EXPECT_EQ(f.boundaries[0].first_oom, 1u);
  EXPECT_TRUE(f.boundaries[0].violated);
}

TEST(Cliff, OneThatStandsOutFromALineIsFound) { EXPECT_EQ(cliffs(line({100, 102, 101, 140, 139})), "..x."); }
TEST(Cliff, AUniformSlopeHasNone) { EXPECT_EQ(cliffs(line({100, 112, 125, 140, 157})), "...."); }
TEST(Cliff, BelowTenPercentIsNone) { EXPECT_EQ(cliffs(line({100, 109})), "."); }
TEST(Cliff, ADropIsOneToo) { EXPECT_EQ(cliffs(line({150, 100})), "x"); }

TEST(Cliff, IntervalsThatMeetGiveNone) {
  auto in = line({100, 111});
  in.cases[0].step_ci_high_ns = 106 * handmade::kMs;
  in.cases[1].step_ci_low_ns = 104 * handmade::kMs;
  EXPECT_EQ(cliffs(in), ".");
}

TEST(Cliff, AMissingPointIsPassedOver) {
  auto in = line({100, 1, 200});
  in.cases[1] = handmade::failed(in.cases[1].axes, 2, harness::Status::kTimeout);
  const auto steps = findings_of(in).steps;
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].from, 0u);
  EXPECT_EQ(steps[0].to, 2u);
  EXPECT_TRUE(steps[0].cliff);
}

TEST(Growth, TimeThatMovesBetweenComputeAndOverlappedDidNotGrow) {
  auto in = line({10, 11});
  handmade::trace(in.cases[0], {2, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  handmade::trace(in.cases[1], {9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0});
  const auto g =
      harness::growth_between(harness::curve_point(in.cases[0], "wrap"), harness::curve_point(in.cases[1], "wrap"));
  ASSERT_EQ(g.parts.size(), 1u);
  EXPECT_EQ(g.parts[0].cls, harness::PartitionClass::kExposedReduceScatter);
  EXPECT_EQ(g.total, 1.0 * handmade::kMs);
}

TEST(ReportText, AsksTheThreeQuestions) {
  const std::string text = reports::report_text(granularity());
  EXPECT_EQ(text.find("How should I wrap it?"), 0u);
  EXPECT_NE(text.find("Why is it slow there?"), std::string::npos);
  EXPECT_NE(text.find("Where does it stop fitting?"), std::string::npos);
}

}  // namespace
