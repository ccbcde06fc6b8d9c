#include "fsdp/core/utf8.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(Utf8, TakesEachLengthAndRefusesWhatIsOverlongCutOrASurrogate) {
  const std::pair<std::string_view, CodePoint> known[] = {
      {"a", {'a', 1}},  {"\xc3\xa9", {0xe9, 2}}, {"\xe2\x80\xae", {0x202e, 3}}, {"\xf0\x9f\x98\x80", {0x1f600, 4}},
      {"\xe9", {0, 0}}, {"\xc0\x80", {0, 0}},    {"\xed\xa0\x80", {0, 0}},      {"\xf4\x90\x80\x80", {0, 0}},
      {"\x80", {0, 0}}, {"\xe2\x80", {0, 0}}};
  for (const auto& [text, expected] : known) {
    const CodePoint p = code_point_at(text, 0);
    EXPECT_EQ(p.length, expected.length) << text;
    if (p.length > 0) {
      EXPECT_EQ(p.value, expected.value) << text;
    }
    EXPECT_EQ(is_utf8(text), expected.length > 0) << text;
  }
}

TEST(Utf8, KnowsHowManyBytesOfACodePointAreStillToCome) {
  EXPECT_EQ(unfinished_bytes(""), 0u);
  EXPECT_EQ(unfinished_bytes("abc"), 0u);
  EXPECT_EQ(unfinished_bytes("a\xf0\x9f\x98"), 3u);
  EXPECT_EQ(unfinished_bytes("a\xe2\x80"), 2u);
  EXPECT_EQ(unfinished_bytes("a\xc3"), 1u);
  EXPECT_EQ(unfinished_bytes("a\xc3\xa9"), 0u);
  EXPECT_EQ(unfinished_bytes("\x80\x80\x80\x80"), 0u);
}

TEST(Utf8, APrefixCutsNoCodePoint) {
  EXPECT_EQ(utf8_prefix("a\xc3\xa9z", 2), "a");
  EXPECT_EQ(utf8_prefix("a\xc3\xa9z", 3), "a\xc3\xa9");
  EXPECT_EQ(utf8_prefix("abc", 9), "abc");
}

}  // namespace
}  // namespace fsdp
