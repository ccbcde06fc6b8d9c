#include "harness/sweep/quantities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

TEST(Quantities, SizesTakeEveryUnitOfTheContract) {
  EXPECT_EQ(parse_bytes("1024"), 1024);
  EXPECT_EQ(parse_bytes("7 B"), 7);
  EXPECT_EQ(parse_bytes("2KB"), 2000);
  EXPECT_EQ(parse_bytes("2MB"), 2'000'000);
  EXPECT_EQ(parse_bytes("2GB"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("2KiB"), 2048);
  EXPECT_EQ(parse_bytes("400MiB"), 400ll << 20);
  EXPECT_EQ(parse_bytes("1.5GiB"), 3ll << 29);
}

TEST(Quantities, TimesAndRatesTakeEveryUnitOfTheContract) {
  EXPECT_EQ(parse_nanos("50us"), 50'000);
  EXPECT_EQ(parse_nanos("3 ns"), 3);
  EXPECT_EQ(parse_nanos("1.5ms"), 1'500'000);
  EXPECT_EQ(parse_nanos("60s"), 60'000'000'000);
  EXPECT_EQ(parse_nanos("0"), 0);
  EXPECT_EQ(parse_bytes_per_second("10GB/s"), 10e9);
  EXPECT_EQ(parse_bytes_per_second("100Gbit/s"), 12.5e9);
  EXPECT_EQ(parse_bytes_per_second("1MiB/s"), 1048576);
  EXPECT_EQ(parse_percent("2%"), 0.02);
}

TEST(Quantities, BadTextIsOneSentenceWithAnExample) {
  const auto sentence = [](auto parse, const char* text) -> std::string {
    try {
      parse(text);
    } catch (const fsdp::ConfigError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(sentence(parse_bytes, "-1MiB"), "\"-1MiB\" is not a size: negative; write for instance 64MiB");
  EXPECT_EQ(
      sentence(parse_bytes, "64MiBs"),
      "\"64MiBs\" is not a size: unknown unit \"MiBs\", not one of B KB MB GB KiB MiB GiB; write for instance 64MiB");
  EXPECT_EQ(sentence(parse_bytes, ""), "\"\" is not a size: no number; write for instance 64MiB");
  EXPECT_EQ(sentence(parse_bytes, "99999999999GiB"),
            "\"99999999999GiB\" is not a size: too large; write for instance 64MiB");
  EXPECT_EQ(sentence(parse_nanos, "50"), "\"50\" is not a time: no unit; write for instance 50us");
  EXPECT_EQ(sentence(parse_nanos, "1e3us"),
            "\"1e3us\" is not a time: unknown unit \"e3us\", not one of ns us ms s; write for instance 50us");
  EXPECT_THAT(sentence(parse_bytes_per_second, "0GB/s"), testing::HasSubstr("above 0"));
  EXPECT_THAT(sentence(parse_bytes_per_second, "10"), testing::HasSubstr("no unit"));
  EXPECT_THAT(sentence(parse_percent, "2"), testing::HasSubstr("write for instance 2%"));
  EXPECT_THAT(sentence(parse_bytes, "nan"), testing::HasSubstr("no number"));
}

TEST(Quantities, ExactTextsReadBackAndAreTheSameForEqualValues) {
  for (const std::int64_t n :
       {0ll, 1ll, 1023ll, 1024ll, 1000ll, 400ll << 20, 3ll << 29, 2'000'000'000ll, 123456789ll}) {
    EXPECT_EQ(parse_bytes(exact_bytes(n)), n);
    EXPECT_EQ(parse_nanos(exact_nanos(n)), n);
  }
  EXPECT_EQ(exact_bytes(parse_bytes("1024MiB")), "1GiB");
  EXPECT_EQ(exact_nanos(parse_nanos("1000us")), "1ms");
  EXPECT_EQ(exact_rate(parse_bytes_per_second("80Gbit/s")), "10GB/s");
  EXPECT_EQ(exact_rate(2.5e6), "2.5MB/s");
}

TEST(Quantities, RoundedTextsHaveTwoDecimals) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(4404019), "4.20 MiB");
  EXPECT_EQ(format_bytes((1ll << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_nanos(999), "999 ns");
  EXPECT_EQ(format_nanos(1'420'000), "1.42 ms");
  EXPECT_EQ(format_nanos(999'999'999), "1.00 s");
}

TEST(Quantities, NearestNamesComeBestFirst) {
  EXPECT_EQ(nearest("blok", {"root", "sublayer", "block", "blocks:K"}, 2), "block, root");
  EXPECT_EQ(nearest("llamadecoderlayer", {"Linear", "LlamaDecoderLayer"}, 1), "LlamaDecoderLayer");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Text, PlaceGoesInFrontOfTheBracket) {
  EXPECT_EQ(with_place("a.yaml:3", "[seed] x"), "[a.yaml:3: seed] x");
  EXPECT_EQ(with_place("a.yaml:3", "x"), "[a.yaml:3] x");
}

}  // namespace
}  // namespace harness
