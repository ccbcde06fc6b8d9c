#include "reports/csv.h"

#include <gtest/gtest.h>

namespace {

using harness::CaseRecord;
using harness::Status;
using harness::SweepRecord;

constexpr const char* kFixed =
    "units,largest_unit_bytes,step_ns,step_mad_ns,step_ci_low_ns,step_ci_high_ns,repetitions,tokens_per_s,peak_bytes,"
    "peak_cause,traced_step_ns,compute_ns,overlapped_ns,exposed_all_gather_forward_ns,exposed_all_gather_backward_ns,"
    "exposed_reduce_scatter_ns,exposed_other_ns,copy_ns,host_ns,memory_wait_ns,optimizer_ns,idle_ns,overlap_pct,"
    "collectives,communicated_bytes,observer_ratio,emulated,predicted\r\n";

SweepRecord two_axes() {
  SweepRecord s;
  s.axes = {{"wrap", {"root", "block"}}, {"backward_prefetch", {"none", "pre"}}};
  return s;
}

TEST(CasesCsv, NoCaseGivesTheHeaderAlone) {
  EXPECT_EQ(reports::cases_csv(two_axes(), {}), std::string("case,status,reason,wrap,backward_prefetch,") + kFixed);
}

TEST(CasesCsv, AFullCaseFillsEveryColumn) {
  CaseRecord c;
  c.id = "llama-block-1f0a9c3b77de";
  c.status = Status::kOk;
  c.axes = {{"backward_prefetch", "pre"}, {"wrap", "block"}};
  c.units = 9, c.largest_unit_bytes = 262144;
  c.step_ns = 12'345'678, c.step_mad_ns = 1000, c.step_ci_low_ns = 12'300'000, c.step_ci_high_ns = 12'400'000;
  c.repetitions = 7, c.tokens_per_s = 41472.5, c.peak_bytes = 1 << 28;
  c.peak_cause = "model.layers.3, backward, unsharded parameters";
  c.traced_step_ns = 66, c.partition = harness::Partition{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  c.overlap_pct = 87.5, c.collectives = 26, c.communicated_bytes = 1024, c.observer_ratio = 1.25, c.emulated = true;
  EXPECT_EQ(reports::cases_csv(two_axes(), {c}),
            std::string("case,status,reason,wrap,backward_prefetch,") + kFixed +
                "llama-block-1f0a9c3b77de,ok,,block,pre,9,262144,12345678,1000,12300000,12400000,7,41472.5,268435456,"
                "\"model.layers.3, backward, unsharded "
                "parameters\",66,1,2,3,4,5,6,7,8,9,10,11,87.5,26,1024,1.25,true,false\r\n");
}

TEST(CasesCsv, WhatACaseDoesNotHaveIsAnEmptyField) {
  CaseRecord c;
  c.id = "x";
  c.status = Status::kOom;
  c.reason = "no room";
  c.axes = {{"wrap", "root"}};
  EXPECT_EQ(reports::cases_csv(two_axes(), {c}), std::string("case,status,reason,wrap,backward_prefetch,") + kFixed +
                                                     "x,oom,no room,root,,,,,,,,0,,,,,,,,,,,,,,,,,,,,false,false\r\n");
}

TEST(CasesCsv, EveryStatusHasItsWord) {
  std::string words;
  for (int s = 0; s <= static_cast<int>(Status::kSkipped); ++s) {
    CaseRecord c;
    c.status = static_cast<Status>(s);
    const std::string csv = reports::cases_csv({}, {c});
    const std::size_t at = csv.find("\r\n") + 3;  // past the empty id and its comma
    words += csv.substr(at, csv.find(',', at) - at) + " ";
  }
  EXPECT_EQ(words, "ok near_oom oom timeout crashed comm_error config_error skipped ");
}

TEST(CasesCsv, AnAxisThatTheCaseKeepsAmongItsSettingsIsFound) {
  CaseRecord c;
  c.settings = {{"wrap", "blocks:2"}};
  EXPECT_NE(reports::cases_csv(two_axes(), {c}).find(",skipped,,blocks:2,,"), std::string::npos);
}

TEST(CsvGuard, WhatASpreadsheetWouldRunGetsAnApostrophe) {
  EXPECT_EQ(reports::guarded_text("=HYPERLINK(A1)"), "'=HYPERLINK(A1)");
  EXPECT_EQ(reports::guarded_text("+x"), "'+x");
  EXPECT_EQ(reports::guarded_text("-x"), "'-x");
  EXPECT_EQ(reports::guarded_text("@SUM(1)"), "'@SUM(1)");
  EXPECT_EQ(reports::guarded_text("\tx"), "'\tx");
  EXPECT_EQ(reports::guarded_text("-1.5e3"), "-1.5e3") << "a number is none";
  EXPECT_EQ(reports::guarded_text("-inf"), "'-inf");
  EXPECT_EQ(reports::guarded_text("blocks:2"), "blocks:2");
  EXPECT_EQ(reports::guarded_text(""), "");
}

// As a reader of the table does it.
std::string unguarded(const std::string& field) { return field.starts_with('\'') ? field.substr(1) : field; }

TEST(CsvGuard, TakingOneApostropheAwayGivesEveryTextBack) {
  for (const char* text : {"=1+1", "+x", "-x", "-5", "@x", "'", "''x", "'=x", "plain", "", "\rx", "- +"})
    EXPECT_EQ(unguarded(reports::guarded_text(text)), text);
}

TEST(CsvGuard, StandsInReasonsAxesAndCauses) {
  CaseRecord c;
  c.reason = "=cmd()", c.peak_cause = "@x, y", c.axes = {{"wrap", "-x"}};
  const std::string csv = reports::cases_csv(two_axes(), {c});
  EXPECT_NE(csv.find(",'=cmd(),'-x,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\"'@x, y\""), std::string::npos) << csv;
}

TEST(CsvField, QuotesCommasQuotesAndLineBreaks) {
  EXPECT_EQ(reports::csv_field("plain words: 5 %"), "plain words: 5 %");
  EXPECT_EQ(reports::csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(reports::csv_field("say \"no\""), "\"say \"\"no\"\"\"");
  EXPECT_EQ(reports::csv_field("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(reports::csv_field("two\rlines"), "\"two\rlines\"");
  EXPECT_EQ(reports::csv_field(""), "");
}

}  // namespace
