#include "reports/compare_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/reports/handmade.h"

namespace {

using nlohmann::json;

harness::Side side(const std::string& name, fsdp::Nanos block_ms) {
  const auto in = handmade::granularity();
  harness::Side s{name, name, in.sweep, in.cases};
  for (auto& c : s.cases) {
    if (c.step_ns) c.samples.assign(9, *c.step_ns);
  }
  s.cases[3].samples.assign(9, block_ms * handmade::kMs);
  return s;
}

TEST(ComparePage, HoldsWhatTheComparisonFound) {
  const auto a = side("before", 10), b = side("after", 13);
  harness::CompareOptions options;
  options.gate = 0.03;
  const auto c = harness::compare(a, b, options);
  const json page = json::parse(reports::compare_json(c, a, b, options));
  ASSERT_EQ(page["cases"].size(), 6u);
  EXPECT_EQ(page["cases"][3]["verdict"], "slower");
  EXPECT_DOUBLE_EQ(page["cases"][3]["effect"], c.cases[3].effect.effect);
  EXPECT_EQ(page["cases"][0]["verdict"], "same");
  EXPECT_FALSE(page["cases"][4].contains("verdict"));  // both out of memory
  EXPECT_EQ(page["gate"], 0.03);
  EXPECT_EQ(page["gate_failed"], true);
  EXPECT_TRUE(page["unlike"].empty());
}

TEST(ComparePage, AGateThatCannotBeDecidedHasNotPassed) {
  const auto a = side("before", 10);
  auto b = side("after", 15);
  b.cases[3].samples.resize(5);
  harness::CompareOptions options;
  options.gate = 0.03;
  const json page = json::parse(reports::compare_json(harness::compare(a, b, options), a, b, options));
  EXPECT_EQ(page["cases"][3]["gate_undecided"], true);
  EXPECT_EQ(page["cases"][0]["gate_undecided"], false);
  EXPECT_EQ(page["gate_undecided"], 1);
  EXPECT_EQ(page["gate_failed"], false);
  EXPECT_EQ(page["gate_text"].get<std::string>().substr(0, 11), "not decided");
}

TEST(ComparePage, OfUnlikeRunsGivesTheFieldsAndNoNumber) {
  const auto a = side("before", 10);
  auto b = side("after", 13);
  for (auto& c : b.cases) c.environment["cpu"] = "another";
  const auto c = harness::compare(a, b, {});
  const json page = json::parse(reports::compare_json(c, a, b, {}));
  EXPECT_TRUE(page["cases"].empty());
  ASSERT_EQ(page["unlike"].size(), 1u);
  EXPECT_EQ(page["unlike"][0]["field"], "cpu");
  EXPECT_TRUE(page["gate"].is_null());
}

TEST(ComparePage, ForeignNamesStayData) {
  const auto a = side("</script><img src=x>", 10), b = side("{{script}}", 10);
  const auto c = harness::compare(a, b, {});
  const std::string page = reports::compare_html(c, a, b, {});
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page, reports::compare_html(c, a, b, {}));
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

}  // namespace
