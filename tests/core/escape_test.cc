#include "fsdp/core/escape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "fsdp/core/utf8.h"

namespace fsdp {
namespace {

std::string utf8(char32_t c) {
  const auto byte = [](char32_t b) { return static_cast<char>(b); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | (c >> 6)), byte(0x80 | (c & 0x3f))};
  if (c < 0x10000) return {byte(0xe0 | (c >> 12)), byte(0x80 | ((c >> 6) & 0x3f)), byte(0x80 | (c & 0x3f))};
  return {byte(0xf0 | (c >> 18)), byte(0x80 | ((c >> 12) & 0x3f)), byte(0x80 | ((c >> 6) & 0x3f)),
          byte(0x80 | (c & 0x3f))};
}

TEST(TerminalText, NoControlAndNoTurnOfDirectionComesThroughAndTheRestStays) {
  const char32_t acting[] = {0x00,   0x07,   0x08,   0x0b,   0x0d,   0x1b,   0x7f,   0x80,   0x85,
                             0x9b,   0x9f,   0x061c, 0x200b, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a,
                             0x202e, 0x2060, 0x2066, 0x2069, 0xfeff, 0xfff9, 0xe0001};
  for (const char32_t c : acting) {
    const std::string out = terminal_text("a" + utf8(c) + "b");
    EXPECT_EQ(out.find(utf8(c)), std::string::npos) << std::hex << static_cast<unsigned>(c);
    EXPECT_THAT(out, testing::MatchesRegex("a\\\\u[0-9a-f]{4}(\\\\u[0-9a-f]{4})?b"));
  }
  for (const std::string& plain : {std::string("a\n\tb"), utf8(0xe9), utf8(0x1f600), utf8(0x4e2d), utf8(0x200d)})
    EXPECT_EQ(terminal_text(plain), plain);
  EXPECT_EQ(terminal_text("\x1b]0;owned\x07"), "\\u001b]0;owned\\u0007");
  EXPECT_EQ(terminal_text("caf\xe9"), "caf\xef\xbf\xbd");
  EXPECT_EQ(one_line("a\nb\tc"), "a\\u000ab\\u0009c");
}

TEST(TerminalText, EveryOtherCodePointOfTheBasicPlaneStays) {
  for (char32_t c = 0x20; c < 0xd800; ++c) {
    if (acts(c)) continue;
    ASSERT_EQ(terminal_text(utf8(c)), utf8(c)) << std::hex << static_cast<unsigned>(c);
  }
}

TEST(PythonComment, EachLineIsOneAndNothingElseEndsALine) {
  EXPECT_EQ(python_comment("a\nb"), "# a\n# b\n");
  EXPECT_EQ(python_comment("sublayer\rimport os"), "# sublayer\\u000dimport os\n");
  EXPECT_EQ(python_comment("a\x0c"
                           "b\xe2\x80\xa8"
                           "c"),
            "# a\\u000cb\\u2028c\n");
}

// PEP 263: in such an encoding "+AAo-" is a line feed.
TEST(PythonComment, DeclaresNoEncoding) {
  for (const char* text : {"coding: utf_7 +AAo-import os", "-*- coding=utf_7 -*-", "vim: set fileencoding=utf_7 :"})
    EXPECT_THAT(python_comment(text), testing::Not(testing::ContainsRegex("coding[:=]"))) << text;
  EXPECT_EQ(python_comment("an encoding"), "# an encoding\n");
}

TEST(PythonString, QuotesBackslashesBracesAndAllThatIsNotAscii) {
  EXPECT_EQ(python_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(python_string("\n\r" + utf8(0x202e) + utf8(0x1f600)), R"("\u000a\u000d\u202e\U0001f600")");
  EXPECT_EQ(python_string("{x}"), "\"{x}\"");
  EXPECT_EQ(python_format_text("{x}\""), R"({{x}}\")");
}

TEST(YamlString, KeepsTheTextInDoubleQuotes) {
  EXPECT_EQ(yaml_string("a'b\"c\\"), R"("a'b\"c\\")");
  EXPECT_EQ(yaml_string("a: b # c\n- d\r"), R"("a: b # c\u000a- d\u000d")");
}

TEST(HtmlText, NoMarkupComesThrough) {
  EXPECT_EQ(html_text("<a href='x' title=\"y\">&"), "&lt;a href=&#39;x&#39; title=&quot;y&quot;&gt;&amp;");
  EXPECT_EQ(html_text("a" + utf8(0x202e)), "a" + utf8(0xfffd));
}

TEST(ShellQuoted, OnlyPlainWordsStayBare) {
  EXPECT_EQ(shell_quoted("a-b_c=d,e.f:/g+@%"), "a-b_c=d,e.f:/g+@%");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  for (const char* word : {"$(x)", "a b", "a;b", "a\nb", "~", "*", "a\xe9"})
    EXPECT_EQ(shell_quoted(word), "'" + std::string(word) + "'");
}

}  // namespace
}  // namespace fsdp
