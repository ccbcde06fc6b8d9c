#include "harness/trial/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fsdp/core/errors.h"

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
