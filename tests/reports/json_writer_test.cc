#include "reports/json_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace {

using reports::json_string;
using reports::JsonWriter;

TEST(JsonWriter, WritesNestedValuesWithCommas) {
  JsonWriter json;
  json.begin_object().field("a", 1).key("b").begin_array().value(2.5).value(true).null().begin_object().end_object();
  json.end_array().field("c", "x").field("d", std::optional<std::int64_t>()).end_object();
  EXPECT_EQ(json.text(), R"({"a":1,"b":[2.5,true,null,{}],"c":"x","d":null})");
}

TEST(JsonWriter, IntegersOfNanosecondsAreExact) {
  JsonWriter json;
  json.value(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(json.text(), "9223372036854775807");
}

TEST(JsonWriter, WhatIsNotFiniteIsNull) {
  JsonWriter json;
  json.begin_array().value(std::numeric_limits<double>::infinity()).value(std::nan("")).end_array();
  EXPECT_EQ(json.text(), "[null,null]");
}

TEST(JsonString, MarkupCannotEndTheScript) {
  EXPECT_EQ(json_string("</script>&<!--"), R"("\u003c/script\u003e\u0026\u003c!--")");
  EXPECT_EQ(json_string("say \"no\\\"\n\t"), R"("say \"no\\\"\n\u0009")");
  EXPECT_EQ(json_string(std::string_view("\0", 1)), R"("\u0000")");
}

TEST(JsonString, KeepsUtf8AndReplacesWhatIsNone) {
  EXPECT_EQ(json_string("\xC3\xA9\xF0\x9F\xA7\xA8"), "\"\xC3\xA9\xF0\x9F\xA7\xA8\"");
  EXPECT_EQ(json_string("a\xff"
                        "b"),
            R"("a\ufffdb")");
  EXPECT_EQ(json_string("\xC0\xAF"), R"("\ufffd\ufffd")");            // overlong
  EXPECT_EQ(json_string("\xED\xA0\x80"), R"("\ufffd\ufffd\ufffd")");  // surrogate
  EXPECT_EQ(json_string("\xE2\x82"), R"("\ufffd\ufffd")");            // cut short
}

TEST(JsonString, CharactersThatTurnTheTextAreReplaced) {
  EXPECT_EQ(json_string("a\xE2\x80\xAE"
                        "b\xE2\x81\xA6"),
            R"("a\ufffdb\ufffd")");
  EXPECT_EQ(json_string("\xE2\x80\xA8"), R"("\u2028")");
}

TEST(JsonString, LongTextIsCutBetweenCharactersAndSaysSo) {
  EXPECT_EQ(json_string("aaaa", 4), "\"aaaa\"");
  EXPECT_EQ(json_string("aaa\xC3\xA9", 4), "\"aaa… (5 bytes in all)\"");
}

TEST(JsonString, AnyBytesGiveJsonThatParses) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_NO_THROW({ const auto parsed = nlohmann::json::parse(json_string(all)); });
}

}  // namespace
