#include "harness/trial/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/cost/hardware.h"

namespace harness {
namespace {

TEST(Messages, JobKeepsSettingsAndRendezvous) {
  RankJob job;
  apply_setting(job.settings, "wrap", "root");
  apply_setting(job.settings, "wire", "50us,10GB/s");
  apply_setting(job.settings, "seed", "1234");
  job.rank = 2;
  job.world = 4;
  job.local_rank = 1;
  job.shared_memory_fd = 4;
  job.master_host = "127.0.0.1";
  const RankJob back = rank_job_from_json(to_json_line(job));
  EXPECT_EQ(all_settings(back.settings), all_settings(job.settings));
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.world, 4);
  EXPECT_EQ(back.local_rank, 1);
  EXPECT_EQ(back.shared_memory_fd, 4);
  EXPECT_EQ(back.master_host, "127.0.0.1");
}

TEST(Messages, AJobBringsTheFilesThatItsSettingsName) {
  FileTexts files;
  files.give({"units.yaml", "units:\n  - match: lm_head\n"});
  files.give({"order.txt", "root\n"});
  files.give({"mine.yaml", to_yaml(load_hardware("cpu-core"))});
  RankJob job;
  apply_setting(job.settings, "wrap", "plan:units.yaml", files);
  apply_setting(job.settings, "prefetch_order", "order.txt", files);
  apply_setting(job.settings, "hardware", "mine.yaml", files);
  const RankJob back = rank_job_from_json(to_json_line(job));  // on a disk without any of them
  EXPECT_EQ(all_settings(back.settings), all_settings(job.settings));
  EXPECT_EQ(case_id(back.settings), case_id(job.settings));
  EXPECT_EQ(std::get<fsdp::WrapPlan>(back.settings.wrap.policy).lines.at(0).match.at(0), "lm_head");
  EXPECT_EQ(*back.settings.hardware.costs, *job.settings.hardware.costs);
}

// Lines may come from a stranger: what lies outside of its range is refused, before it is added to anything.
TEST(Messages, NumbersOutsideOfTheirRangesAreRefused) {
  RankEvent e;
  e.kind = RankEvent::Kind::kResult;
  e.result.spans.resize(1);
  const nlohmann::json good = nlohmann::json::parse(to_json_line(e));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_NO_THROW(rank_event_from_json(good.dump()));
  const auto refused = [&](const std::string& at, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(at)] = value;
    try {
      rank_event_from_json(bad.dump());
    } catch (const fsdp::CommError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  for (const char* at :
       {"/spans_base", "/spans/0/6", "/spans/0/7", "/spans/0/8", "/spans/0/9", "/rank", "/peak/total",
        "/peak/at_peak/0", "/peak/unit", "/category_peaks/1", "/collectives_per_step", "/communicated_bytes_per_step",
        "/prefetch/3", "/ns", "/spans/0/0", "/spans/0/1", "/spans/0/4"}) {
    for (const nlohmann::json& value : {nlohmann::json(most), nlohmann::json(-most), nlohmann::json(1e300),
                                        nlohmann::json(std::numeric_limits<std::uint64_t>::max()), nlohmann::json("1")})
      EXPECT_NE(refused(at, value).find(", not a whole number from "), std::string::npos)
          << at << " " << value << ": " << refused(at, value);
  }
  EXPECT_NE(refused("/spans/0/8", -1), "accepted") << "a span that ends before it begins";
  EXPECT_NE(refused("/spans/0/2", fsdp::kLaneCount), "accepted");
  EXPECT_NE(refused("/traced_step_ns", {most, most}), "accepted");
  EXPECT_NE(refused("/losses", {"one"}), "accepted");
  EXPECT_NE(refused("/category_peaks", {1, 2}), "accepted");
}

TEST(Messages, AJobOfAnotherVersionOrAStrangerIsRefused) {
  const nlohmann::json good = nlohmann::json::parse(to_json_line(RankJob{}));
  const auto refused = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[key] = value;
    try {
      rank_job_from_json(bad.dump());
    } catch (const fsdp::Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refused("tracce", true).find("unknown word 'tracce'; nearest: trace"), std::string::npos);
  EXPECT_NE(refused("settings", {{"wrold", "2"}}).find("[wrold] unknown setting; nearest: world"), std::string::npos);
  for (const char* key : {"rank", "world", "local_rank", "shared_memory_fd"})
    EXPECT_NE(refused(key, 1 << 30 | 0x7fffffffL << 8).find(key), std::string::npos) << refused(key, 1L << 40);
  EXPECT_NE(refused("rank", 1), "accepted") << "in a world of 1";
  EXPECT_NE(refused("settings", {{"wrap", "plan:/etc/hostname"}}).find("was not sent along"), std::string::npos);
}

TEST(Messages, CommandsComeBack) {
  for (const RankCommand c : {RankCommand::kRepeat, RankCommand::kTrace, RankCommand::kFinish, RankCommand::kReport}) {
    EXPECT_EQ(rank_command_from_json(to_json_line(c)), c);
  }
}

TEST(Messages, ResultComesBackToTheLastBit) {
  RankEvent e;
  e.kind = RankEvent::Kind::kResult;
  RankResult& r = e.result;
  r.rank = 3;
  r.losses = {4.8212432861328125, 0.1, 1.0 / 3.0, std::numeric_limits<double>::infinity(), std::nan("")};
  r.gradient_square_sums = {1e-300, 2.5};
  r.peak.total = 12;
  r.peak.at_peak = {1, 2, 3, 4, 5, 6, 7};
  r.peak.where = {2, fsdp::Pass::kBackward};
  r.category_peaks = {7, 6, 5, 4, 3, 2, 1};
  r.peak_cause = "model.layers.3, backward, activations";
  r.spans = {{7,
              3,
              1,
              fsdp::Lane::kReduceScatter,
              fsdp::SpanKind::kReduceScatter,
              2,
              fsdp::Pass::kBackward,
              1'000'000'000'000,
              1'000'000'000'005,
              1'000'000'000'009,
              4096,
              {3, 5}},
             {8,
              3,
              1,
              fsdp::Lane::kHost,
              fsdp::SpanKind::kStep,
              fsdp::kNoUnit,
              fsdp::Pass::kNone,
              999'999'999'000,
              999'999'999'000,
              1'000'000'000'010,
              0,
              {}}};
  r.traced_step_ns = {1010};
  r.collectives_per_step = 9;
  r.communicated_bytes_per_step = 1 << 20;
  r.prefetch = {5, 2, 1, 3};
  r.warnings = {"a\nline break and \"quotes\""};
  r.environment = {{"libtorch", "2.11.0"}};

  const std::string line = to_json_line(e);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const RankEvent back = rank_event_from_json(line);
  ASSERT_EQ(back.kind, RankEvent::Kind::kResult);
  const RankResult& b = back.result;
  EXPECT_EQ(b.rank, 3);
  ASSERT_EQ(b.losses.size(), 5U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(b.losses[i], r.losses[i]);
  EXPECT_TRUE(std::isnan(b.losses[4]));
  EXPECT_EQ(b.gradient_square_sums, r.gradient_square_sums);
  EXPECT_EQ(b.peak.total, 12);
  EXPECT_EQ(b.peak.at_peak, r.peak.at_peak);
  EXPECT_EQ(b.peak.where.unit, 2);
  EXPECT_EQ(b.peak.where.pass, fsdp::Pass::kBackward);
  EXPECT_EQ(b.category_peaks, r.category_peaks);
  EXPECT_EQ(b.peak_cause, r.peak_cause);
  ASSERT_EQ(b.spans.size(), 2U);
  for (int i = 0; i < 2; ++i) {
    const fsdp::Span &x = b.spans[i], &y = r.spans[i];
    EXPECT_EQ(
        std::tie(x.id, x.rank, x.step, x.lane, x.kind, x.unit, x.pass, x.issued, x.begin, x.end, x.bytes, x.waits),
        std::tie(y.id, y.rank, y.step, y.lane, y.kind, y.unit, y.pass, y.issued, y.begin, y.end, y.bytes, y.waits));
  }
  EXPECT_EQ(b.traced_step_ns, r.traced_step_ns);
  EXPECT_EQ(b.prefetch.hits, 5);
  EXPECT_EQ(b.prefetch.misses, 2);
  EXPECT_EQ(b.prefetch.unused, 1);
  EXPECT_EQ(b.prefetch.order_changes, 3);
  EXPECT_EQ(b.warnings, r.warnings);
  EXPECT_EQ(b.environment, r.environment);
}

TEST(Messages, FailureKeepsStatusReasonAndPlace) {
  RankEvent e;
  e.kind = RankEvent::Kind::kFailed;
  e.status = Status::kOom;
  e.reason = "[memory] not enough";
  e.cause = "root, forward, activations";
  e.where = "warm-up, step 1";
  const RankEvent back = rank_event_from_json(to_json_line(e));
  EXPECT_EQ(back.kind, RankEvent::Kind::kFailed);
  EXPECT_EQ(back.status, Status::kOom);
  EXPECT_EQ(back.reason, e.reason);
  EXPECT_EQ(back.cause, e.cause);
  EXPECT_EQ(back.where, e.where);
}

TEST(Messages, WhatCannotBeReadIsACommErrorThatShowsIt) {
  for (const char* line :
       {"", "{", "[]", "{\"event\":\"dance\"}", "{\"event\":7}", "{\"event\":\"ready\"}", "\xff\xfe"}) {
    EXPECT_THROW(rank_event_from_json(line), fsdp::CommError) << line;
    EXPECT_THROW(rank_command_from_json(line), fsdp::CommError) << line;
  }
  try {
    rank_event_from_json("not json");
    FAIL();
  } catch (const fsdp::CommError& e) {
    EXPECT_NE(std::string(e.what()).find("not json"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace harness
