#include "harness/trace/event_reader.h"

#include "fsdp/core/errors.h"
#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

fsdp::Nanos nanos(const std::string& text) {
  fsdp::Nanos v = -1;
  return micros_to_nanos(text, v) ? v : -1;
}

TEST(MicrosToNanos, IsExactToThreeDecimalsAndRoundsBeyond) {
  EXPECT_EQ(nanos("0"), 0);
  EXPECT_EQ(nanos("100.7"), 100'700);
  EXPECT_EQ(nanos("0.2"), 200);
  EXPECT_EQ(nanos("1712195495519689.047"), 1'712'195'495'519'689'047);
  EXPECT_EQ(nanos("1.0004"), 1000);
  EXPECT_EQ(nanos("1.0005"), 1001);
  EXPECT_EQ(nanos("-2.5"), -2500);
  EXPECT_EQ(nanos("\"12.25\""), 12'250) << "some writers quote numbers";
  EXPECT_EQ(nanos("1.5e3"), 1'500'000);
}

TEST(MicrosToNanos, RefusesWhatIsNoNumber) {
  for (const char* bad :
       {"", "-", ".", "1.", "NaN", "Infinity", "1.2.3", "12x", "99999999999999999999", "null", "1e400"}) {
    fsdp::Nanos v;
    EXPECT_FALSE(micros_to_nanos(bad, v)) << bad;
  }
}

TEST(ToInt, KeepsIdsAbove53Bits) {
  std::int64_t v = 0;
  ASSERT_TRUE(to_int("9007199254740993", v));
  EXPECT_EQ(v, 9007199254740993);
  ASSERT_TRUE(to_int("18446744073709551615", v));
  EXPECT_EQ(static_cast<std::uint64_t>(v), 18446744073709551615u);
  EXPECT_FALSE(to_int("abc", v));
}

struct Read {
  std::vector<std::string> names;
  TextDefects defects;
  std::uint64_t events = 0;
  std::map<std::string, std::string> members;
};

Read read_text_as_file(const std::string& text, std::size_t window = 1 << 20) {
  EventReader reader(write_file("reader.json", text), window);
  Read out;
  reader.read([&](const RawEvent& e) { out.names.emplace_back(e.name); });
  out.defects = reader.defects();
  out.events = reader.events();
  out.members = reader.members();
  return out;
}

std::string three_kernels() {
  KinetoText t;
  return t.kernel("a", 7, "1.000", "2.000").kernel("b", 7, "4.000", "2.000").kernel("c", 7, "7.000", "2.000").text();
}

using Names = std::vector<std::string>;

TEST(EventReaderTest, GivesEventsAndMembersWhateverTheWindow) {
  for (std::size_t window : {std::size_t{64}, std::size_t{5000}, std::size_t{1} << 20}) {
    const Read r = read_text_as_file(three_kernels(), window);
    EXPECT_EQ(r.names, (Names{"a", "b", "c"}));
    EXPECT_FALSE(r.defects.any()) << r.defects.first;
    EXPECT_EQ(r.members.at("traceName"), "\"by hand\"");
    EXPECT_EQ(r.events, 3u);
  }
}

TEST(EventReaderTest, LongEventsAndMembersPassThroughASmallWindow) {
  KinetoText t;
  t.members += ", \"INFO\": [\"" + std::string(3 << 20, 'x') + "\", {\"deep\": [[1, 2], \"]}\"]}]";
  t.kernel(std::string(100'000, 'k'), 7, "1", "2").kernel("b", 7, "4", "2");
  const Read r = read_text_as_file(t.text(), 4096);
  EXPECT_EQ(r.names.size(), 2u);
  EXPECT_FALSE(r.defects.any()) << r.defects.first;
  EXPECT_FALSE(r.members.contains("INFO")) << "too long to keep";
}

TEST(EventReaderTest, TakesABareArrayAndKeysInAnyOrder) {
  EXPECT_EQ(
      read_text_as_file(
          "[{\"args\": {\"name\": \"x\"}, \"dur\": 1, \"ts\": 2, \"name\": \"k\", \"cat\": \"kernel\", \"ph\": \"X\"}]")
          .names,
      (Names{"k"}));
}

TEST(EventReaderTest, OldSpellingsAreKnown) {
  const Read r = read_text_as_file(
      "{\"traceEvents\": [{\"ph\":\"X\",\"cat\":\"Kernel\",\"name\":\"k\",\"pid\":0,\"tid\":\"stream "
      "7\",\"ts\":1,\"dur\":2,\"args\":{}},"
      "{\"ph\":\"X\",\"cat\":\"Memcpy\",\"name\":\"m\",\"ts\":1,\"dur\":2},{\"ph\":\"X\",\"cat\":\"Runtime\",\"name\":"
      "\"r\",\"ts\":1,\"dur\":2},"
      "{\"ph\":\"X\",\"cat\":\"Operator\",\"name\":\"aten::mm\",\"ts\":1,\"dur\":2}]}");
  EXPECT_EQ(r.names, (Names{"k", "m", "r"}));
}

TEST(EventReaderTest, HostOperatorsAreSkippedButForCollectives) {
  KinetoText t;
  t.event("{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"c10d::allgather_\",\"ts\":1,\"dur\":1}");
  t.event("{\"ph\":\"X\",\"name\":\"c10d::allgather_\",\"cat\":\"cpu_op\",\"ts\":1,\"dur\":1}");
  t.event(
      "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"ts\":1,\"dur\":1,\"args\":{\"Input "
      "Dims\":[[1,[2]],\"}\"]}}");
  EXPECT_EQ(read_text_as_file(t.text()).names, (Names{"c10d::allgather_", "c10d::allgather_"}));
}

// --- damage ---

TEST(EventReaderTest, ATrailingCommaIsLetPassAndSaid) {
  std::string text = three_kernels();
  text.insert(text.find("\n]"), ",");
  const Read r = read_text_as_file(text);
  EXPECT_EQ(r.names.size(), 3u);
  EXPECT_EQ(r.defects.tolerated, 1u);
  EXPECT_EQ(r.defects.lost_events, 0u);
  EXPECT_NE(r.defects.first.find("comma"), std::string::npos);
}

TEST(EventReaderTest, ARawNewlineInANameLosesNothing) {
  std::string text = three_kernels();
  text.replace(text.find("\"b\""), 3, "\"b\nx\"");
  const Read r = read_text_as_file(text);
  EXPECT_EQ(r.names, (Names{"a", "b\nx", "c"}));
  EXPECT_EQ(r.defects.tolerated, 1u);
  EXPECT_EQ(r.defects.first.substr(0, 5), "byte ");
}

TEST(EventReaderTest, ALostQuoteLosesOneEvent) {
  std::string text = three_kernels();
  text.erase(text.find("\"b\"") + 2, 1);  // "b, "pid": ...
  const Read r = read_text_as_file(text);
  EXPECT_EQ(r.names, (Names{"a", "c"}));
  EXPECT_EQ(r.defects.lost_events, 1u);
  EXPECT_FALSE(r.defects.truncated);
}

TEST(EventReaderTest, AnUnescapedQuoteLosesOneEvent) {
  std::string text = three_kernels();
  text.replace(text.find("\"b\""), 3, "\"b \"odd\" b\"");
  const Read r = read_text_as_file(text);
  EXPECT_EQ(r.names, (Names{"a", "c"}));
  EXPECT_EQ(r.defects.lost_events, 1u);
}

TEST(EventReaderTest, OnOneLineALostQuoteCostsTheEventsUpToTheNextGoodOne) {
  std::string text = three_kernels();
  std::erase(text, '\n');
  text.erase(text.find("\"b\"") + 2, 1);
  const Read r = read_text_as_file(text, 4096);
  EXPECT_GE(r.defects.lost_events, 1u);
  EXPECT_EQ(r.names.back(), "c");
}

TEST(EventReaderTest, CutTextGivesEveryWholeEventAndSaysWhere) {
  const std::string text = three_kernels();
  const std::size_t inside_c = text.find("\"c\"") + 10, after_comma = text.find(",\n{", text.find("\"b\"")) + 1;
  const Read inside = read_text_as_file(text.substr(0, inside_c));
  EXPECT_EQ(inside.names, (Names{"a", "b"}));
  EXPECT_EQ(inside.defects.lost_events, 1u);
  EXPECT_TRUE(inside.defects.truncated);
  const Read comma = read_text_as_file(text.substr(0, after_comma));
  EXPECT_EQ(comma.names, (Names{"a", "b"}));
  EXPECT_EQ(comma.defects.lost_events, 0u);
  EXPECT_TRUE(comma.defects.truncated);
}

TEST(EventReaderTest, WhatIsNoTraceIsRefusedWithAReason) {
  for (const char* text :
       {"", "hello", "{}", "{\"a\": 1}", "123", "\x7f\x45\x4c\x46", "{\"traceEvents\": 5}", "{\"traceEvents\""}) {
    const std::string path = write_file("no.json", text);
    try {
      EventReader(path).read([](const RawEvent&) {});
      ADD_FAILURE() << "accepted: " << text;
    } catch (const fsdp::ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find("no trace"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(EventReader("/nonexistent/trace.json"), fsdp::ConfigError);
  EXPECT_THROW(EventReader("/tmp"), fsdp::ConfigError);
}

TEST(EventReaderTest, GzipOfSeveralMembersAndCutGzip) {
  const std::string text = three_kernels();
  std::string packed;
  for (const std::string& part : {text.substr(0, 100), text.substr(100)}) {
    const std::string path = temporary("part.gz");
    gzFile f = gzopen(path.c_str(), "wb");
    gzwrite(f, part.data(), static_cast<unsigned>(part.size()));
    gzclose(f);
    packed += read_file(path);
  }
  EventReader whole(write_file("two.json.gz", packed));
  int n = 0;
  whole.read([&](const RawEvent&) { ++n; });
  EXPECT_EQ(n, 3);
  EXPECT_FALSE(whole.defects().any());
  EventReader cut(write_file("cut.json.gz", packed.substr(0, packed.size() - 40)));
  cut.read([](const RawEvent&) {});
  EXPECT_TRUE(cut.defects().truncated);
  EXPECT_NE(cut.defects().first.find("gzip stream ends early"), std::string::npos);
}

}  // namespace
}  // namespace harness::testing
