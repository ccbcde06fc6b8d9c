#include "harness/trial/assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/trial/environment.h"

namespace harness {
namespace {
using testing::ElementsAre;

CaseSettings two_ranks() {
  CaseSettings c;
  apply_setting(c, "set", "layers=2,dim=64,heads=2,kv_heads=2,ffn=96,vocab=128");
  c.seq = 16;
  c.batch = 2;
  c.steps = 3;
  return c;
}

// Steps of the given lengths, each all compute, but an all-gather in flight over the first `communication` ns.
RankResult result(int rank, const std::vector<fsdp::Nanos>& lengths, fsdp::Nanos communication) {
  RankResult r;
  r.rank = rank;
  r.losses = {2.0 + rank, 1.0};
  r.gradient_square_sums = {9.0, 16.0 * rank};
  r.peak.total = 100 * (rank + 1);
  r.peak_cause = "cause of " + std::to_string(rank);
  fsdp::Nanos at = 0;
  std::uint32_t id = 0;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const auto step = static_cast<std::int32_t>(s);
    const fsdp::Nanos end = at + lengths[s];
    r.spans.push_back(
        {++id, rank, step, fsdp::Lane::kHost, fsdp::SpanKind::kStep, -1, fsdp::Pass::kNone, at, at, end, 0, {}});
    if (communication > 0) {
      r.spans.push_back({++id,
                         rank,
                         step,
                         fsdp::Lane::kAllGather,
                         fsdp::SpanKind::kAllGather,
                         0,
                         fsdp::Pass::kForward,
                         at,
                         at,
                         at + communication,
                         8,
                         {}});
    }
    r.spans.push_back({++id,
                       rank,
                       step,
                       fsdp::Lane::kCompute,
                       fsdp::SpanKind::kCompute,
                       0,
                       fsdp::Pass::kForward,
                       at,
                       at,
                       end,
                       0,
                       {}});
    r.traced_step_ns.push_back(lengths[s]);
    at = end;
  }
  return r;
}

TEST(Assemble, SamplesBecomeMedianIntervalAndTokensPerSecond) {
  CaseRecord record;
  fill_samples(record, two_ranks(), {2'000'000, 1'000'000, 4'000'000}, RepeatStop::kNarrow);
  EXPECT_EQ(record.step_ns, 2'000'000);
  EXPECT_EQ(record.repetitions, 3);
  EXPECT_EQ(record.stopped_by, "narrow");
  EXPECT_EQ(record.step_ci_low_ns, 1'000'000);
  EXPECT_EQ(record.step_ci_high_ns, 4'000'000);
  EXPECT_EQ(record.tokens_per_s, 2 * 2 * 16 / 0.002);
}

TEST(Assemble, LossesAreMeansAndNormsAreRootsOfSums) {
  CaseRecord record;
  fill_results(record, two_ranks(), {result(0, {10}, 0), result(1, {10}, 0)});
  EXPECT_THAT(record.losses, ElementsAre(2.5, 1.0));
  EXPECT_THAT(record.grad_norms, ElementsAre(std::sqrt(18.0), 4.0));
}

TEST(Assemble, PartitionIsTheMedianStepOfTheSlowestRank) {
  CaseRecord record;
  record.step_ns = 40;
  // Rank 1 is slower in total, though its median is not larger than rank 0's.
  fill_results(record, two_ranks(), {result(0, {50, 50, 50}, 5), result(1, {20, 50, 90}, 5)});
  EXPECT_EQ(record.partition_rank, 1);
  EXPECT_EQ(record.partition_step, 1);
  EXPECT_EQ(record.traced_step_ns, 50);
  ASSERT_TRUE(record.partition);
  EXPECT_EQ(sum(*record.partition), 50);
  EXPECT_EQ(record.overlap_pct, 100.0);
  EXPECT_EQ(record.observer_ratio, 1.25);
  EXPECT_EQ(record.steps.size(), 6U);
  EXPECT_EQ(record.spans.size(), 6U);  // three of each rank's step 1
  for (const fsdp::Span& s : record.spans) EXPECT_EQ(s.step, 1);
}

TEST(Assemble, OnATieTheLowestRankIsDescribedAndWithoutCommunicationOverlapIsAbsent) {
  CaseRecord record;
  fill_results(record, two_ranks(), {result(0, {10, 20, 30}, 0), result(1, {30, 20, 10}, 0)});
  EXPECT_EQ(record.partition_rank, 0);
  EXPECT_EQ(record.partition_step, 1);
  EXPECT_FALSE(record.overlap_pct);
  EXPECT_FALSE(record.observer_ratio);  // no untraced time
}

TEST(Assemble, PeakIsTheLargestRanksAndNearTheBudgetIsNearOom) {
  CaseSettings c = two_ranks();
  CaseRecord record;
  fill_results(record, c, {result(0, {10}, 0), result(1, {10}, 0)});
  EXPECT_EQ(record.status, Status::kOk);
  EXPECT_EQ(record.peak_bytes, 200);
  EXPECT_EQ(record.peak_cause, "cause of 1");

  apply_setting(c, "memory_budget", "211B");
  fill_results(record = {}, c, {result(0, {10}, 0), result(1, {10}, 0)});
  EXPECT_EQ(record.status, Status::kOk);
  apply_setting(c, "memory_budget", "210B");
  fill_results(record = {}, c, {result(0, {10}, 0), result(1, {10}, 0)});
  EXPECT_EQ(record.status, Status::kNearOom);
  EXPECT_NE(record.reason.find("200 B on rank 1"), std::string::npos) << record.reason;
}

TEST(Assemble, UnitsAreThoseOfThePlanWithPaddedBytes) {
  CaseRecord record;
  fill_units(record, two_ranks());
  EXPECT_EQ(record.units, 3);
  ASSERT_EQ(record.unit_table.size(), 3U);
  // Two embeddings of 128 x 64 and a norm of 64.
  EXPECT_EQ(record.unit_table[0].name, "root");
  EXPECT_EQ(record.unit_table[0].parameters, 2 * 128 * 64 + 64);
  EXPECT_EQ(record.unit_table[0].shard_bytes, record.unit_table[0].unsharded_bytes / 2);
  // Two norms of 64, four of 64 x 64, three of 64 x 96: multiples of 32 elements, so nothing is padded.
  EXPECT_EQ(record.unit_table[1].name, "model.layers.0");
  EXPECT_EQ(record.largest_unit_bytes, 4 * (2 * 64 + 4 * 64 * 64 + 3 * 64 * 96));
}

TEST(Assemble, RecordsOfUntracedRunsHaveNoPartition) {
  RankResult r = result(0, {10}, 0);
  r.spans.clear();
  CaseRecord record;
  fill_results(record, two_ranks(), {r});
  EXPECT_FALSE(record.partition);
  EXPECT_FALSE(record.traced_step_ns);
  EXPECT_TRUE(record.steps.empty());
}

TEST(Environment, TheCommandSaysOnlyWhatDiffersAndQuotesIt) {
  CaseSettings c;
  EXPECT_EQ(command_of(c), "shardscope run");
  apply_setting(c, "forward_prefetch", "0");
  apply_setting(c, "wrap", "class:LlamaDecoderLayer,Embedding");
  EXPECT_EQ(command_of(c), "shardscope run --wrap class:LlamaDecoderLayer,Embedding --forward-prefetch 0");
  apply_setting(c, "wrap", "class:model.layers.*");
  EXPECT_EQ(command_of(c), "shardscope run --wrap 'class:model.layers.*' --forward-prefetch 0");
}

TEST(Environment, TheMachineAndTheVersionAreNamed) {
  const auto e = host_environment();
  for (const char* key : {"cpu", "cores", "kernel", "memory_bytes", "shardscope", "git_revision"}) {
    ASSERT_TRUE(e.contains(key)) << key;
    EXPECT_FALSE(e.at(key).empty()) << key;
  }
}

}  // namespace
}  // namespace harness
