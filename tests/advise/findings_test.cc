// Cliffs in sweeps whose truth is known: the scheduler over the virtual device, with constants that plant one cause.
#include "harness/advise/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "harness/analysis/statistics.h"
#include "tests/schedule/scripted_world.h"

namespace harness {
namespace {

using fsdp::Nanos;
using fsdp::testing::Costs;
using fsdp::testing::ScriptedWorld;
using testing::HasSubstr;
using Axes = std::vector<std::pair<std::string, std::vector<std::string>>>;

struct Truth {
  int layers = 64;
  Nanos forward = 10'000, per_layer_gather = 2'000, latency = 100, launch = 10;  // ns, of a layer
  int slots = 2;
  std::pair<Nanos, Nanos> reduces{0, 0};  // of units in turns, on a communicator of their own; {0, 0}: like the gather
};

// A case with its layers in units of `per_unit`, every sample within `noise` of the virtual time.
CaseRecord run_case(const Truth& t, int per_unit, std::mt19937& random, double noise = 0.002) {
  const Nanos g = per_unit, gather = t.latency + t.per_layer_gather * g;
  std::vector<Costs> costs =
      ScriptedWorld::equal(t.layers / per_unit, {gather, t.forward * g, 2 * t.forward * g, gather});
  for (std::size_t i = 0; i < costs.size() && t.reduces.first > 0; ++i)
    costs[i].reduce = i % 2 == 0 ? t.reduces.first : t.reduces.second;
  fsdp::SchedulerOptions options;
  options.reduce_scatter_slots = t.slots;
  options.own_reduce_scatter_communicator = t.reduces.first > 0;
  ScriptedWorld world(costs, options, t.launch);
  world.steady();
  CaseRecord r;
  const StepPartition p = partition_steps(world.spans).at(0);
  r.partition = p.classes;
  r.partition_details = p.details;
  const Nanos step = sum(p.classes);
  std::uniform_real_distribution<double> wobble(-noise, noise);
  for (int i = 0; i < 9; ++i) r.samples.push_back(static_cast<Nanos>(static_cast<double>(step) * (1 + wobble(random))));
  const SampleSummary s = summarize(r.samples);
  r.status = Status::kOk;
  r.step_ns = s.median, r.step_ci_low_ns = s.ci_low, r.step_ci_high_ns = s.ci_high, r.ci_coverage = s.coverage;
  for (int u = 0; u < t.layers / per_unit; ++u) {
    r.unit_table.emplace_back();
    r.unit_table.back().name = "layers." + std::to_string(u);
  }
  return r;
}

struct Sweep {
  Axes axes;
  std::vector<CaseRecord> cases;
  void add(CaseRecord r, const std::string& value) {
    r.axes = {{axes[0].first, value}};
    r.id = axes[0].first + "-" + value;
    axes[0].second.push_back(value);
    cases.push_back(std::move(r));
  }
  std::vector<Finding> cliffs() const {
    std::vector<Finding> out;
    for (Finding& f : find_findings(axes, cases))
      if (f.kind == Finding::Kind::kCliff) out.push_back(std::move(f));
    return out;
  }
};

Sweep granularity(const Truth& t, std::mt19937& random) {
  Sweep s{{{"wrap", {}}}, {}};
  for (int per_unit : {16, 8, 4, 2, 1}) s.add(run_case(t, per_unit, random), "blocks:" + std::to_string(per_unit));
  return s;
}

TEST(PlantedCliffs, ALaunchCostThatOnlyTheFinestUnitsCannotHideIsFoundAsLaunchBound) {
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    Truth t;
    t.launch = 8'500 + static_cast<Nanos>(random() % 2'000);
    const auto found = granularity(t, random).cliffs();
    ASSERT_EQ(found.size(), 1u) << "launch " << t.launch;
    EXPECT_THAT(found[0].text, HasSubstr("wrap=blocks:1 is"));
    EXPECT_THAT(found[0].text, HasSubstr("host-bound"));
    EXPECT_EQ(found[0].confidence, Confidence::kHigh);
  }
}

TEST(PlantedCliffs, ALatencyThatOnlyTheFinestUnitsCannotHideIsFoundAsCommunicationBound) {
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    Truth t;
    t.latency = 13'000 + static_cast<Nanos>(random() % 1'000);
    const auto found = granularity(t, random).cliffs();
    ASSERT_EQ(found.size(), 1u) << "latency " << t.latency;
    EXPECT_THAT(found[0].text, HasSubstr("wrap=blocks:1 is"));
    EXPECT_THAT(found[0].text, HasSubstr("communication-bound"));
  }
}

TEST(PlantedCliffs, ReductionsThatWaitForTheOneSlotAreFoundAsWaitingForMemory) {
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) {
    Truth t;
    t.per_layer_gather = 500;
    t.reduces = {33'000 + static_cast<Nanos>(random() % 3'000), 1'000};
    Sweep s{{{"reduce_scatter_slots", {}}}, {}};
    for (int slots : {5, 4, 3, 2, 1}) {
      t.slots = slots;
      s.add(run_case(t, 1, random), std::to_string(slots));
    }
    const auto found = s.cliffs();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_THAT(found[0].text, HasSubstr("reduce_scatter_slots=1 is"));
    EXPECT_THAT(found[0].text, HasSubstr("waiting for a place in memory"));
  }
}

TEST(PlantedCliffs, NoneIsFoundWhereEverythingIsHidden) {
  std::mt19937 random(4);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(granularity(Truth{}, random).cliffs().empty());
}

CaseRecord ladder_case(double samples_per_s, int batch, double memory_pct, Status status) {
  CaseRecord r;
  r.status = status;
  r.settings = {{"batch", std::to_string(batch)}};
  if (!measured(status)) return r;
  const double step = 1e9 * batch / samples_per_s;
  for (int i = 0; i < 9; ++i) r.samples.push_back(static_cast<Nanos>(step * (1 + 0.001 * (i - 4))));
  const SampleSummary s = summarize(r.samples);
  r.step_ns = s.median, r.step_ci_low_ns = s.ci_low, r.step_ci_high_ns = s.ci_high, r.ci_coverage = s.coverage;
  r.peak_bytes = static_cast<fsdp::Bytes>(memory_pct * 1e6);
  r.reason = status == Status::kNearOom ? std::to_string(static_cast<int>(memory_pct)) + " % of the budget" : "";
  return r;
}

// The published ladder 14.5, 20.1, 23.6, 25.4, 26.7 samples/s at 8 to 40 a rank; 44 ran out of memory.
TEST(Findings, ABoundaryIsAnIntervalAndARisingLineIsNotDrawnThroughIt) {
  Sweep s{{{"batch", {}}}, {}};
  const double rate[] = {14.5, 20.1, 23.6, 25.4, 26.7};
  for (int i = 0; i < 5; ++i)
    s.add(ladder_case(rate[i], 8 * (i + 1), 42 + 12.5 * i, Status::kOk), std::to_string(8 * (i + 1)));
  s.add(ladder_case(0, 44, 0, Status::kOom), "44");
  const auto found = find_findings(s.axes, s.cases);
  const auto edge =
      std::find_if(found.begin(), found.end(), [](const Finding& f) { return f.kind == Finding::Kind::kBoundary; });
  ASSERT_NE(edge, found.end());
  EXPECT_EQ(edge->text, "batch: 40 fits, 44 does not: out of memory");
  EXPECT_EQ(edge->cases, (std::vector<std::string>{"batch-40", "batch-44"}));
}

// The published ladder 6.2, 7.0, 6.2, 4.9 samples/s at 4, 8, 10, 12 with 71, 91, 98, 97 % of memory reserved.
TEST(Findings, ThroughputThatFallsBeforeMemoryEndsIsAKneeNearTheLimit) {
  Sweep s{{{"batch", {}}}, {}};
  s.add(ladder_case(6.2, 4, 71, Status::kOk), "4");
  s.add(ladder_case(7.0, 8, 91, Status::kOk), "8");
  s.add(ladder_case(6.2, 10, 98, Status::kNearOom), "10");
  s.add(ladder_case(4.9, 12, 97, Status::kNearOom), "12");
  const auto found = find_findings(s.axes, s.cases);
  const auto near =
      std::find_if(found.begin(), found.end(), [](const Finding& f) { return f.kind == Finding::Kind::kNearOom; });
  ASSERT_NE(near, found.end());
  EXPECT_THAT(near->text, HasSubstr("10, 12 fit only just"));
}

TEST(Findings, AFitAboveAnOutOfMemoryIsToldAndNotSmoothedOver) {
  Sweep s{{{"batch", {}}}, {}};
  s.add(ladder_case(6, 1, 10, Status::kOk), "1");
  s.add(ladder_case(0, 2, 0, Status::kOom), "2");
  s.add(ladder_case(7, 4, 10, Status::kOk), "4");
  const auto found = find_findings(s.axes, s.cases);
  const auto bad =
      std::find_if(found.begin(), found.end(), [](const Finding& f) { return f.kind == Finding::Kind::kViolation; });
  ASSERT_NE(bad, found.end());
  EXPECT_THAT(bad->text, HasSubstr("1 fits, 2 does not, 4 fits"));
}

TEST(Findings, CasesThatWereSkippedAreNotMeasuredAndTheRuleIsScored) {
  Sweep s{{{"batch", {}}}, {}};
  s.add(ladder_case(6, 1, 10, Status::kOk), "1");
  s.add(ladder_case(0, 2, 0, Status::kOom), "2");
  s.add(ladder_case(0, 3, 0, Status::kSkipped), "3");
  s.add(ladder_case(0, 4, 0, Status::kOom), "4");
  s.cases.back().environment["boundary_check"] = "oom";
  const auto found = find_findings(s.axes, s.cases);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(
      found[0].text,
      "batch: 1 fits, 2 does not: out of memory; 1 other values were skipped, 1 of 1 run to check that rule were as "
      "it said");
}

TEST(Findings, APredictedBoundaryIsScored) {
  for (const auto& [predicted, words] : {std::pair{"1", "; the virtual world had predicted that"},
                                         std::pair{"none", "; the virtual world had predicted none"}}) {
    Sweep s{{{"batch", {}}}, {}};
    s.add(ladder_case(6, 1, 10, Status::kOk), "1");
    s.cases.back().environment["boundary_predicted"] = predicted;
    s.add(ladder_case(0, 2, 0, Status::kOom), "2");
    const auto found = find_findings(s.axes, s.cases);
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].text, std::string("batch: 1 fits, 2 does not: out of memory") + words);
  }
}

}  // namespace
}  // namespace harness
