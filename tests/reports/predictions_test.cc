#include "reports/predictions.h"

#include <gtest/gtest.h>

#include "tests/reports/handmade.h"

namespace {

using reports::predicted_pairs;

// The cases of `granularity` as a cost model might give them, on another device.
reports::ReportInput predicted() {
  auto in = handmade::granularity();
  for (auto& c : in.cases) {
    c.predicted = true;
    c.settings.emplace_back("device", "virtual");
    c.settings.emplace_back("hardware", "h100");
  }
  return in;
}

TEST(PredictedPairs, AreCasesWithEqualSettingsWhereverTheyRan) {
  const auto pairs = predicted_pairs({handmade::granularity(), predicted()});
  ASSERT_EQ(pairs.size(), 4u);  // two ran out of memory
  EXPECT_EQ(pairs[3].predicted.sweep, 1u);
  EXPECT_EQ(pairs[3].measured.sweep, 0u);
  EXPECT_EQ(pairs[3].predicted.index, 3u);
  EXPECT_EQ(pairs[3].measured.index, 3u);
}

TEST(PredictedPairs, AnotherSettingThatDiffersMakesNoPair) {
  auto other = predicted();
  for (auto& c : other.cases) c.settings.emplace_back("batch", "7");
  EXPECT_TRUE(predicted_pairs({handmade::granularity(), other}).empty());
}

TEST(PredictedPairs, APredictionIsNoMeasurement) { EXPECT_TRUE(predicted_pairs({predicted(), predicted()}).empty()); }

}  // namespace
