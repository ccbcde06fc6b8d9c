#include "reports/text.h"

#include <gtest/gtest.h>

namespace {

using namespace reports;

TEST(DurationText, KeepsThreeDigitsAndPicksTheUnit) {
  EXPECT_EQ(duration_text(0), "0 ns");
  EXPECT_EQ(duration_text(999), "999 ns");
  EXPECT_EQ(duration_text(12'345), "12.3 µs");
  EXPECT_EQ(duration_text(999'600), "1.00 ms");
  EXPECT_EQ(duration_text(123'456'789), "123 ms");
  EXPECT_EQ(duration_text(5'810'000'000), "5.81 s");
}

TEST(BytesText, UsesBinaryUnits) {
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(312 << 20), "312 MiB");
  EXPECT_EQ(bytes_text((std::int64_t{3} << 30) / 2), "1.50 GiB");
}

TEST(NumberTexts, HaveTheirSigns) {
  EXPECT_EQ(percent_text(0.081), "8.1 %");
  EXPECT_EQ(percent_text(0.5), "50 %");
  EXPECT_EQ(ratio_text(2.913), "2.91x");
  EXPECT_EQ(rate_text(12'345.6), "12,346 tokens/s");
  EXPECT_EQ(rate_text(3.14159), "3.14 tokens/s");
  EXPECT_EQ(count_text(1, "unit", "units"), "1 unit");
  EXPECT_EQ(count_text(1'234'567, "unit", "units"), "1,234,567 units");
}

TEST(BytesFrom, ReadsWhatSettingsHold) {
  EXPECT_EQ(bytes_from("1024"), 1024);
  EXPECT_EQ(bytes_from("400MiB"), 400 << 20);
  EXPECT_EQ(bytes_from("1.5 GB"), 1'500'000'000);
  EXPECT_EQ(bytes_from("none"), std::nullopt);
  EXPECT_EQ(bytes_from(""), std::nullopt);
  EXPECT_EQ(bytes_from("12 parsecs"), std::nullopt);
}

}  // namespace
