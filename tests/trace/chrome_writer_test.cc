#include "harness/trace/chrome_writer.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <clocale>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fsdp/core/errors.h"
#include "harness/trace/json_text.h"

namespace harness {
namespace {

using fsdp::Lane;
using fsdp::Pass;
using fsdp::Span;
using fsdp::SpanKind;
using nlohmann::json;

std::string read_all(const std::string& path) {
  gzFile f = gzopen(path.c_str(), "rb");
  std::string out;
  char part[65536];
  for (int n; (n = gzread(f, part, sizeof part)) > 0;) out.append(part, static_cast<std::size_t>(n));
  gzclose(f);
  return out;
}

std::string temporary(const std::string& name) { return testing::TempDir() + name; }

Span span(std::uint32_t id, SpanKind kind, Lane lane, int unit, Pass pass, fsdp::Nanos begin, fsdp::Nanos end,
          std::vector<std::uint32_t> waits = {}) {
  Span s;
  s.id = id, s.kind = kind, s.lane = lane, s.unit = unit, s.pass = pass;
  s.begin = begin, s.issued = begin, s.end = end, s.waits = std::move(waits);
  return s;
}

std::vector<Span> small_step() {
  std::vector<Span> s{
      span(1, SpanKind::kAllGather, Lane::kAllGather, 0, Pass::kForward, 1'000'000'000'001, 1'000'000'002'001),
      span(2, SpanKind::kCompute, Lane::kCompute, 0, Pass::kForward, 1'000'000'002'001, 1'000'000'007'001, {1}),
      span(3, SpanKind::kStep, Lane::kHost, fsdp::kNoUnit, Pass::kNone, 1'000'000'000'000, 1'000'000'008'000)};
  s[0].bytes = 4096;
  return s;
}

json parsed(const std::string& path) { return json::parse(read_all(path)); }

TEST(ChromeWriter, ParsesBackWithNamesLanesAndExactTimes) {
  const std::string path = temporary("small.json");
  write_chrome_trace(path, small_step(), {"model.layers.0"}, {{"command", "run \"x\""}});
  const json t = parsed(path);
  EXPECT_EQ(t["schema"], "shardscope-trace/1");
  EXPECT_EQ(t["baseTimeNanoseconds"], 1'000'000'000'000);
  EXPECT_EQ(t["metadata"]["command"], "run \"x\"");
  bool found = false;
  for (const json& e : t["traceEvents"]) {
    if (e["name"] != "AG model.layers.0 forward") continue;
    found = true;
    EXPECT_EQ(e["pid"], 1000);
    EXPECT_EQ(e["args"]["bytes"], 4096);
    EXPECT_EQ(e["args"]["unit"], "model.layers.0");
    EXPECT_EQ(e["args"]["pass"], "forward");
  }
  EXPECT_TRUE(found);
  const std::string text = read_all(path);
  EXPECT_NE(text.find("\"ts\":0.001,\"dur\":2.000"), std::string::npos);
}

TEST(ChromeWriter, GzipHoldsTheSameText) {
  write_chrome_trace(temporary("a.json"), small_step(), {"m"});
  write_chrome_trace(temporary("a.json.gz"), small_step(), {"m"});
  EXPECT_EQ(read_all(temporary("a.json")), read_all(temporary("a.json.gz")));
  std::ifstream raw(temporary("a.json.gz"), std::ios::binary);
  EXPECT_EQ(raw.get(), 0x1f);
}

TEST(ChromeWriter, NoSpansIsStillAWholeFile) {
  write_chrome_trace(temporary("empty.json"), {}, {});
  EXPECT_EQ(parsed(temporary("empty.json"))["traceEvents"].size(), 1u);
}

TEST(ChromeWriter, SlicesOfOneThreadNeverCrossAndEventsAreInOrder) {
  std::vector<Span> spans;
  std::uint32_t id = 0;
  for (int i = 0; i < 200; ++i) {
    const fsdp::Nanos b = (i * 37) % 500, e = b + (i * 53) % 90;
    spans.push_back(span(++id, SpanKind::kAllGather, Lane::kAllGather, i % 5, Pass::kForward, b, e));
  }
  write_chrome_trace(temporary("cross.json"), spans, {});
  std::map<std::pair<int, int>, std::vector<double>> open;
  double last = -1;
  const json trace = parsed(temporary("cross.json"));
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] == "M") continue;
    const double ts = e["ts"], end = ts + e["dur"].get<double>();
    EXPECT_GE(ts, last);
    last = ts;
    std::vector<double>& ends = open[{e["pid"], e["tid"]}];
    while (!ends.empty() && ends.back() <= ts + 1e-9) ends.pop_back();
    EXPECT_TRUE(e["tid"].get<int>() % 10 == 9 || ends.empty() || end <= ends.back() + 1e-9) << e.dump();
    ends.push_back(end);
  }
}

TEST(ChromeWriter, ArrowsArePairedAndLieInsideTheirSlices) {
  write_chrome_trace(temporary("arrow.json"), small_step(), {"m"});
  std::map<int, std::string> phases;
  const json trace = parsed(temporary("arrow.json"));
  for (const json& e : trace["traceEvents"]) {
    if (e.contains("id")) phases[e["id"].get<int>()] += e["ph"].get<std::string>();
  }
  EXPECT_EQ(phases, (std::map<int, std::string>{{1, "sf"}}));
}

TEST(ChromeWriter, HostileNamesAreEscapedAndRepaired) {
  std::string out;
  append_json_string(out,
                     "a\"b\\c\nd\x01"
                     "e\xff\xfeü\xed\xa0\x80");
  EXPECT_EQ(json::parse(out).get<std::string>(),
            "a\"b\\c\nd\x01"
            "e\uFFFD\uFFFDü\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(printable("x\ny\xff"), "x y\uFFFD");
}

TEST(ChromeWriter, MicrosecondsAreExactWhateverTheLocale) {
  std::setlocale(LC_ALL, "de_DE.UTF-8");
  std::string out;
  for (fsdp::Nanos ns : {0LL, 1LL, 999LL, 1000LL, 1234567LL, -1500LL, 1795971182268518196LL})
    append_micros(out, ns), out += ' ';
  std::setlocale(LC_ALL, "C");
  EXPECT_EQ(out, "0.000 0.001 0.999 1.000 1234.567 -1.500 1795971182268518.196 ");
}

TEST(ChromeWriter, AnUnwritablePathSaysSoAndLeavesNothing) {
  EXPECT_THROW(write_chrome_trace("/nonexistent/x.json", {}, {}), fsdp::ConfigError);
}

}  // namespace
}  // namespace harness
