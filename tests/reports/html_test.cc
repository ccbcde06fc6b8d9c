#include "reports/html.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "reports/csv.h"
#include "reports/timeline.h"
#include "reports/web_assets.h"
#include "tests/reports/handmade.h"
#include "tests/testing/synthetic_sweep.h"
#include "tests/testing/time.h"

namespace {

using nlohmann::json;
using reports::report_html;
using reports::ReportInput;
using testing_support::synthetic_sweep;
using testing_support::SyntheticOptions;

ReportInput input_of(int cases, bool hostile = false, int ranks = 2) {
  SyntheticOptions options;
  options.cases = cases;
  options.ranks = ranks;
  auto s = synthetic_sweep(options);
  if (hostile) make_hostile(s);
  return {s.sweep, s.cases};
}

constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"data\">";

std::string data_of(const std::string& page) {
  const std::size_t begin = page.find(kDataBegin);
  if (begin == std::string::npos) return {};
  const std::size_t from = begin + kDataBegin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::string unpacked(const std::string& base64) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned word = 0;
  int bits = 0;
  for (const char c : base64) {
    if (c == '=') break;
    word = (word << 6) | static_cast<unsigned>(digits.find(c));
    bits += 6;
    if (bits >= 8) bits -= 8, bytes += static_cast<char>((word >> bits) & 0xff);
  }
  std::string out(64 << 20, '\0');
  uLongf size = out.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                       bytes.size()),
            Z_OK);
  out.resize(size);
  return out;
}

class Page : public testing::TestWithParam<int> {};

TEST_P(Page, IsOneFileThatLoadsNothing) {
  const std::string page = report_html({input_of(GetParam())});
  EXPECT_EQ(page.find("http:"), std::string::npos);
  EXPECT_EQ(page.find("https:"), std::string::npos);
  EXPECT_EQ(page.find("@import"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
  const std::regex load(R"((src|href)\s*=\s*["']?(?!["']?(#|data:))[^"'\s>]+)", std::regex::icase);
  const std::string markup = page.substr(0, page.find(kDataBegin));
  EXPECT_FALSE(std::regex_search(markup, load));
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST_P(Page, HoldsEveryCaseAsJson) {
  const json data = json::parse(data_of(report_html({input_of(GetParam())})));
  ASSERT_EQ(data["sweeps"].size(), 1u);
  EXPECT_EQ(data["sweeps"][0]["cases"].size(), static_cast<std::size_t>(GetParam()));
  for (const json& w : data["sweeps"][0]["workloads"]) EXPECT_EQ(w["answers"].size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Page, testing::Values(0, 1, 40, 500));

TEST(PageText, WithoutASweepIsStillAPage) { EXPECT_EQ(json::parse(data_of(report_html({})))["sweeps"].size(), 0u); }

TEST(PageText, SeveralSweepsStandInOnePage) {
  const json data = json::parse(data_of(report_html({input_of(3), input_of(5)})));
  ASSERT_EQ(data["sweeps"].size(), 2u);
  EXPECT_EQ(data["sweeps"][1]["cases"].size(), 5u);
}

TEST(PageText, TheSameRecordsGiveTheSamePage) { EXPECT_EQ(report_html({input_of(10)}), report_html({input_of(10)})); }

TEST(PageText, PartitionsSumToTheirStep) {
  const json data = json::parse(data_of(report_html({input_of(40)})));
  int traced = 0;
  for (const json& c : data["sweeps"][0]["cases"]) {
    if (!c.contains("partition")) continue;
    std::int64_t sum = 0, details = 0;
    for (const json& ns : c["partition"]) sum += ns.get<std::int64_t>();
    for (const json& row : c["details"]) details += row[3].get<std::int64_t>();
    EXPECT_EQ(sum, c["traced_step_ns"].get<std::int64_t>());
    EXPECT_EQ(details, sum);
    ++traced;
  }
  EXPECT_GT(traced, 20);
}

// A card that sums to 112 ms stood beside a table of ranks that said 174: two medians of two steps.
TEST(PageText, TheTableOfRanksHasTheStepOfThePartition) {
  auto in = handmade::granularity();
  harness::CaseRecord& c = in.cases[3];
  handmade::trace(c, {40, 20, 10, 10, 10, 0, 0, 12, 0, 10, 0});
  c.partition_rank = 1;
  for (int rank = 0; rank < 2; ++rank) {
    harness::RankRecord r;
    r.rank = rank;
    r.step_ns = {174 * handmade::kMs, 112 * handmade::kMs};
    c.ranks.push_back(r);
  }
  const json page = json::parse(data_of(report_html({in})));
  EXPECT_EQ(page["sweeps"][0]["cases"][3]["traced_step_ns"], 112 * handmade::kMs);
  EXPECT_EQ(page["sweeps"][0]["cases"][3]["ranks"][1][3], 112 * handmade::kMs);
}

TEST(HostileNames, AddNoElementToThePage) {
  const std::string friendly = report_html({input_of(40)}), hostile = report_html({input_of(40, true)});
  EXPECT_EQ(count(hostile, "<script"), count(friendly, "<script"));
  EXPECT_EQ(count(hostile, "</script"), count(friendly, "</script"));
  EXPECT_EQ(count(hostile, "<img"), 0u);
  EXPECT_EQ(data_of(hostile).find('<'), std::string::npos);
  EXPECT_EQ(data_of(hostile).find('&'), std::string::npos);
}

TEST(HostileNames, SurviveAsTextCutToALength) {
  const json data = json::parse(data_of(report_html({input_of(40, true)})));
  const std::string name = data["sweeps"][0]["name"];
  EXPECT_EQ(name.find("</script><script>"), 0u);
  std::size_t longest = 0;
  for (const json& table : data["sweeps"][0]["unit_tables"]) {
    for (const json& unit : table) longest = std::max(longest, unit[0].get<std::string>().size());
  }
  EXPECT_GT(longest, 600u);
  EXPECT_LT(longest, 700u);
}

TEST(HostileNames, InTheTitleAreEscaped) {
  reports::ReportOptions options;
  options.title = "</title><script>\"&";
  EXPECT_NE(report_html({}, options).find("<title>&lt;/title&gt;&lt;script&gt;&quot;&amp;</title>"), std::string::npos);
}

TEST(TemplateMarks, InTheDataAreLeftAlone) {
  ReportInput in = input_of(1);
  in.sweep.name = "{{script}}{{data}}{{title}}";
  const json data = json::parse(data_of(report_html({in})));
  EXPECT_EQ(data["sweeps"][0]["name"], "{{script}}{{data}}{{title}}");
}

TEST(PageSize, FiveHundredCasesOfEightRanksStayBelowTwoMegabytesAndThreeSeconds) {
  const ReportInput in = input_of(500, false, 8);
  const fsdp::Nanos begin = testing_support::processor_time();
  const std::string page = report_html({in});
  const double seconds = static_cast<double>(testing_support::processor_time() - begin) / 1e9;
  RecordProperty("bytes", static_cast<int>(page.size()));
  RecordProperty("milliseconds", static_cast<int>(1000 * seconds));
  EXPECT_LT(page.size(), 2'000'000u);
  EXPECT_LT(seconds, 3.0 * testing_support::kSlowdown);  // of the processor; 0.3 s on a machine that does nothing else
}

TEST(PageSize, TimelinesTakeOnlyWhatTheRestLeaves) {
  const ReportInput in = input_of(40);
  reports::ReportOptions options;
  options.timeline_budget = 0;
  const std::size_t without = reports::report_json({in}, options).size();
  options = {};
  options.data_budget = without + 20'000;
  const json data = json::parse(reports::report_json({in}, options));
  EXPECT_GT(data["timelines"][0]["embedded"].get<int>(), 0);
  EXPECT_LT(data["timelines"][0]["embedded"], data["timelines"][0]["with_spans"]);
  EXPECT_LT(reports::report_json({in}, options).size(), options.data_budget);
}

TEST(Dictionary, ExplainsEveryColumnOfTheCsv) {
  const ReportInput in = input_of(1);
  const std::string csv = reports::cases_csv({}, in.cases), header = csv.substr(0, csv.find("\r\n"));
  std::istringstream columns(header);
  for (std::string name; std::getline(columns, name, ',');) {
    EXPECT_TRUE(std::regex_search(std::string(reports::kPageJs), std::regex("\\['[^']*\\b" + name + "\\b[^']*', '")))
        << name;
  }
}

TEST(ClockUncertainty, IsWhatTheEndsOfSharedCollectivesDisagreeBy) {
  harness::CaseRecord c;
  const auto gather = [&](int rank, fsdp::Nanos begin, fsdp::Nanos end) {
    c.spans.push_back({static_cast<std::uint32_t>(c.spans.size() + 1),
                       rank,
                       0,
                       fsdp::Lane::kAllGather,
                       fsdp::SpanKind::kAllGather,
                       0,
                       fsdp::Pass::kForward,
                       begin,
                       begin,
                       end,
                       64,
                       {}});
  };
  gather(0, 0, 100);
  EXPECT_EQ(reports::clock_uncertainty(c), std::nullopt);  // one rank
  for (const fsdp::Nanos end : {200, 300}) gather(0, end - 50, end);
  for (const fsdp::Nanos end : {100, 210, 300}) gather(1, end - 40, end);
  EXPECT_EQ(reports::clock_uncertainty(c), 10);  // the ends are apart by 0, 10 and 0
}

TEST(Timeline, UnpacksToSpansAndPiecesOfTheStep) {
  const auto in = input_of(10);
  const harness::CaseRecord& c = in.cases[8];
  ASSERT_FALSE(c.spans.empty());
  const json t = json::parse(unpacked(reports::packed(reports::timeline_json(c, {0, 1}))));
  ASSERT_EQ(t["ranks"].size(), 2u);
  for (const json& rank : t["ranks"]) {
    std::int64_t length = 0;
    for (std::size_t i = 3; i < rank["pieces"].size(); i += 4) length += rank["pieces"][i].get<std::int64_t>();
    EXPECT_EQ(length, rank["end"].get<std::int64_t>() - rank["begin"].get<std::int64_t>());
    std::size_t spans = 0;
    for (const json& lane : rank["lanes"]) spans += lane[1].size() / 7;
    const auto own =
        std::count_if(c.spans.begin(), c.spans.end(), [&](const auto& s) { return s.rank == rank["rank"].get<int>(); });
    EXPECT_EQ(spans + 1, static_cast<std::size_t>(own));  // all but the step itself
  }
  EXPECT_EQ(t["units"].size(), 13 * c.unit_metrics.size());
  ASSERT_GE(t["savings"].size(), 5u);
  EXPECT_LE(t["savings"][4].get<std::int64_t>(), t["savings"][3].get<std::int64_t>());  // saved, of what is exposed
}

TEST(Timeline, SpansWithoutAStepAreDrawnWithoutAPartition) {
  harness::CaseRecord c;
  c.spans.push_back(
      {1, 0, 0, fsdp::Lane::kCompute, fsdp::SpanKind::kCompute, 0, fsdp::Pass::kForward, 5, 10, 30, 0, {}});
  const json t = json::parse(reports::timeline_json(c, {0}));
  EXPECT_TRUE(t["ranks"][0]["pieces"].empty());
  EXPECT_EQ(t["ranks"][0]["lanes"], json::parse("[[1,[0,0,1,0,20,0,5]]]"));
}

TEST(Timeline, BudgetKeepsTheMostImportantAndCountsTheRest) {
  const auto in = input_of(40, false, 4);
  std::vector<std::size_t> order;
  for (std::size_t i = 40; i > 0; --i) order.push_back(i - 1);
  const auto all = reports::pack_timelines(in.cases, order, 10'000'000);
  EXPECT_EQ(all.embedded, all.with_spans);
  EXPECT_EQ(all.all_ranks, all.with_spans);
  const auto few = reports::pack_timelines(in.cases, order, all.packed[39].size() / 2);
  EXPECT_EQ(few.with_spans, all.with_spans);
  EXPECT_LT(few.embedded, all.embedded);
  EXPECT_GT(few.embedded, 0u);
  EXPECT_FALSE(few.packed[39].empty());
  EXPECT_TRUE(reports::pack_timelines(in.cases, order, 0).packed[39].empty());
}

TEST(Base64, PadsAsRfc4648) {
  EXPECT_EQ(reports::base64(""), "");
  EXPECT_EQ(reports::base64("f"), "Zg==");
  EXPECT_EQ(reports::base64("fo"), "Zm8=");
  EXPECT_EQ(reports::base64("foobar"), "Zm9vYmFy");
}

TEST(RerunCommand, QuotesForAShellAndLeavesOutDefaults) {
  harness::CaseRecord c;
  c.settings = {{"model", "llama"},
                {"set", "layers=2,dim=64"},
                {"wire", "50us,10GB/s"},
                {"forward_prefetch", "1"},
                {"prefetch_order", "it's a file.txt"},
                {"network", ""}};
  EXPECT_EQ(
      reports::rerun_command(c, {{"forward_prefetch", "1"}, {"model", "gpt2"}}),
      "shardscope run --model llama --set layers=2,dim=64 --wire 50us,10GB/s --prefetch-order 'it'\\''s a file.txt'");
}

}  // namespace
