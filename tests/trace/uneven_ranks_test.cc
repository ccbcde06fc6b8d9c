// C32: two ranks whose micro-batches cost 10, 2, 10, 2 and 2, 10, 2, 10 ms. Reduced every time each waits for the
// other's long one, reduced once nobody waits; and what was waited for is said to be imbalance.
#include <algorithm>

#include "fsdp/device/virtual/virtual_device.h"
#include "fsdp/schedule/scripted_step.h"
#include "harness/trace/chrome_writer.h"
#include "harness/trace/imbalance.h"
#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

using fsdp::Nanos;
using fsdp::Pass;
using fsdp::Span;

constexpr Nanos kMillisecond = 1'000'000;
constexpr int kMicroBatches = 4;

// One rank's step: one unit that is kept between forward and backward, collectives without a cost of their own.
// `waits`: what its n-th collective waits for the other rank.
std::vector<Span> step_of(int rank, bool reduce_every_time, const std::vector<Nanos>& waits) {
  fsdp::VirtualDevice device;
  std::size_t nth = 0;
  fsdp::VirtualCollectives collectives(
      device, 2, [&](const fsdp::CollectiveCall&) { return nth < waits.size() ? waits[nth++] : Nanos{0}; });
  fsdp::UnitTraits unit;
  unit.name = "all";
  unit.unsharded_bytes = 1024;
  unit.reshard_after_forward = unit.frees_without_sync = false;
  fsdp::MemoryMeter meter;
  const fsdp::UnitBytes bytes{
      .parameters = 512, .unsharded = 1024, .reduce = 1024, .gradient = 512, .accumulated = 1024};
  fsdp::CountingUnitMemory memory({bytes}, {false}, meter);
  fsdp::Scheduler scheduler({unit}, {}, device, collectives, memory, &meter);
  device.set_recording(true);
  int forwards = 0;
  fsdp::run_scripted_step(scheduler, device, 0, fsdp::sequence_script(1),
                          [&](Pass pass, fsdp::UnitId u) {
                            if (pass == Pass::kOptimizer) return;
                            const int micro_batch = pass == Pass::kForward ? forwards++ : forwards - 1;
                            const bool is_long = micro_batch % 2 == rank;
                            device.charge(fsdp::Lane::kCompute, {fsdp::SpanKind::kCompute, u, pass, 0},
                                          (is_long ? 10 : 2) * kMillisecond / 2);
                          },
                          {.count = kMicroBatches, .sync_every = reduce_every_time});
  std::vector<Span> spans = device.take_spans();
  for (Span& s : spans) s.rank = rank;
  return spans;
}

std::vector<Nanos> arrivals_of(const std::vector<Span>& spans) {
  std::vector<Nanos> out;
  for (const Span& s : spans)
    if (fsdp::is_collective(s.kind)) out.push_back(s.begin);
  std::sort(out.begin(), out.end());
  return out;
}

// Both ranks; a collective ends on both when the later one has come. Each round settles one more collective.
std::vector<Span> two_ranks(bool reduce_every_time) {
  std::vector<Nanos> waits[2];
  std::vector<Span> spans[2];
  for (int round = 0; round < 4 * kMicroBatches; ++round) {
    for (int r = 0; r < 2; ++r) spans[r] = step_of(r, reduce_every_time, waits[r]);
    const std::vector<Nanos> first = arrivals_of(spans[0]), second = arrivals_of(spans[1]);
    EXPECT_EQ(first.size(), second.size());
    for (auto& w : waits) w.assign(first.size(), 0);
    for (std::size_t i = 0; i < first.size(); ++i) {
      const Nanos last = std::max(first[i], second[i]);
      waits[0][i] = last - first[i];
      waits[1][i] = last - second[i];
    }
  }
  spans[0].insert(spans[0].end(), spans[1].begin(), spans[1].end());
  return spans[0];
}

Nanos length(const std::vector<Span>& spans) {
  Nanos end = 0;
  for (const Span& s : spans) end = std::max(end, s.end);
  return end;
}

TEST(C32, ReducingEveryMicroBatchWaitsForTheSlowerRankEachTime) {
  EXPECT_EQ(length(two_ranks(true)), 40 * kMillisecond);
  EXPECT_EQ(length(two_ranks(false)), 24 * kMillisecond);
}

TEST(C32, TheAnalysisSaysImbalanceAndNoSlowCommunication) {
  const std::string path = temporary("uneven.json");
  write_chrome_trace(path, two_ranks(true), {"all"});
  const TraceAnalysis a = analyze({path});
  ASSERT_TRUE(a.imbalance_pct.has_value());
  EXPECT_DOUBLE_EQ(*a.imbalance_pct, 40);
  const std::string text = to_text(a);
  EXPECT_NE(text.find("imbalance 40 % of the step: ranks wait in collectives for the last one to come; most of the "
                      "exposed communication is that"),
            std::string::npos)
      << text;
  EXPECT_EQ(nlohmann::json::parse(to_json(a))["imbalance_pct"], 40);
  EXPECT_EQ(a.rows.at(0).overlap_pct, 0) << "all of it is exposed";
}

TEST(C32, EvenRanksHaveNone) {
  const std::string path = temporary("even.json");
  write_chrome_trace(path, two_ranks(false), {"all"});
  const TraceAnalysis a = analyze({path});
  ASSERT_TRUE(a.imbalance_pct.has_value());
  EXPECT_DOUBLE_EQ(*a.imbalance_pct, 0);
  EXPECT_EQ(to_text(a).find("imbalance"), std::string::npos);
}

const OwnRun kOneClock{true, std::set<fsdp::UnitId>{}};

Span collective(int rank, fsdp::SpanKind kind, Nanos begin, Nanos end, Pass pass = Pass::kBackward) {
  Span s;
  s.rank = rank;
  s.lane = kind == fsdp::SpanKind::kAllGather ? fsdp::Lane::kAllGather : fsdp::Lane::kReduceScatter;
  s.kind = kind;
  s.unit = 0;
  s.pass = pass;
  s.issued = s.begin = begin * kMillisecond;
  s.end = end * kMillisecond;
  return s;
}

// Rank 0 waits 5 ms each time. Once it is woken 12 ms late: its stamp of the end, and nothing else, is off.
TEST(C32, OneLateWakeDoesNotHideWhatRanksWaitEachTime) {
  std::vector<Span> spans;
  for (int i = 0; i < 8; ++i) {
    spans.push_back(collective(0, fsdp::SpanKind::kAllGather, 40 * i, 40 * i + (i == 3 ? 18 : 6)));
    spans.push_back(collective(1, fsdp::SpanKind::kAllGather, 40 * i + 5, 40 * i + 6));
  }
  const auto a = align_own(spans, kOneClock);
  ASSERT_TRUE(a && a->aligned);
  EXPECT_EQ(a->uncertainty, 2) << "a nanosecond of each rank's stamps";
  EXPECT_EQ(waits_of_ranks(*a), (std::vector<Nanos>{8 * 5 * kMillisecond, 0}));
}

// Ranks of two hosts: the second one's clock is a second ahead, so that nobody would ever meet.
TEST(C32, ClocksOnWhichACollectiveWasNeverOnAllRanksAreAligned) {
  std::vector<Span> spans;
  for (int i = 0; i < 8; ++i) {
    spans.push_back(collective(0, fsdp::SpanKind::kAllGather, 40 * i, 40 * i + 6));
    spans.push_back(collective(1, fsdp::SpanKind::kAllGather, 1000 + 40 * i + 5, 1000 + 40 * i + 6));
  }
  const auto a = align_own(spans, {});
  ASSERT_TRUE(a && a->aligned);
  EXPECT_EQ(a->clocks[1].offset, 1000 * kMillisecond);
  EXPECT_EQ(waits_of_ranks(*a), (std::vector<Nanos>{8 * 5 * kMillisecond, 0}));
}

// Ranks 0 and 1 shard, ranks 2 and 3 are their replicas: 0 and 2 have no all-gather in common.
TEST(C32, NothingIsSaidOfHybridPlans) {
  std::vector<Span> spans;
  for (int r = 0; r < 4; ++r) {
    spans.push_back(collective(r, fsdp::SpanKind::kAllGather, 20 * (r / 2), 20 * (r / 2) + 6));
    spans.push_back(collective(r, fsdp::SpanKind::kReduceScatter, 50, 60));
  }
  EXPECT_TRUE(align_own(spans, kOneClock).has_value());
  for (int r = 0; r < 4; ++r) spans.push_back(collective(r, fsdp::SpanKind::kAllReduce, 60, 70));
  EXPECT_FALSE(align_own(spans, kOneClock).has_value());
}

// reshard_after_forward: 2, four ranks: in backward 0 and 1 gather among themselves, 2 and 3 for themselves 20 ms
// later, and nobody waits for the other two.
TEST(C32, GathersInBackwardOverGroupsAreLeftOut) {
  std::vector<Span> spans;
  for (int r = 0; r < 4; ++r) {
    spans.push_back(collective(r, fsdp::SpanKind::kAllGather, r == 3 ? 5 : 0, 6, Pass::kForward));
    spans.push_back(collective(r, fsdp::SpanKind::kAllGather, 10 + 20 * (r / 2), 16 + 20 * (r / 2)));
    spans.push_back(collective(r, fsdp::SpanKind::kReduceScatter, 50, 60));
  }
  const Nanos wait = 5 * kMillisecond;
  const std::vector<Nanos> forward = {wait, wait, wait, 0};
  for (const bool one_clock : {true, false}) {
    const auto told = align_own(spans, {one_clock, std::set<fsdp::UnitId>{0}});
    ASSERT_TRUE(told && told->aligned);
    EXPECT_EQ(told->collectives.size(), 2u);
    EXPECT_EQ(waits_of_ranks(*told), forward);
    EXPECT_EQ(waits_of_ranks(*align_own(spans, {one_clock, std::nullopt})), forward) << "a trace that does not say";
  }
}

// The same without groups: all of them meet, the later two have the others wait.
TEST(C32, GathersInBackwardOverAllRanksCountWhereTheTraceSaysThatTheyAre) {
  std::vector<Span> spans;
  for (int r = 0; r < 2; ++r) {
    spans.push_back(collective(r, fsdp::SpanKind::kAllGather, 0, 6, Pass::kForward));
    spans.push_back(collective(r, fsdp::SpanKind::kAllGather, 10 + 3 * r, 16));
  }
  EXPECT_EQ(waits_of_ranks(*align_own(spans, {true, std::set<fsdp::UnitId>{}})),
            (std::vector<Nanos>{3 * kMillisecond, 0}));
}

// Clocks that disagree by less than a collective lasts: that all were in it at once does not make them one.
TEST(C32, OnlyATraceThatSaysSoHasOneClock) {
  std::vector<Span> spans;
  for (int i = 0; i < 8; ++i) {
    spans.push_back(collective(0, fsdp::SpanKind::kAllGather, 40 * i, 40 * i + 6));
    spans.push_back(collective(1, fsdp::SpanKind::kAllGather, 40 * i + 4, 40 * i + 10));
  }
  EXPECT_EQ(align_own(spans, {})->clocks[1].offset, 4 * kMillisecond);
  EXPECT_EQ(align_own(spans, kOneClock)->clocks[1].offset, 0);
}

// Rank 1 comes 4 ms late to the gathers in backward.
TEST(C32, TheTraceSaysWhetherItsRanksShareAClockAndWhichGathersAllShare) {
  std::vector<Span> spans;
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 4; ++i) {
      spans.push_back(collective(r, fsdp::SpanKind::kAllGather, 20 * i, 20 * i + 4, Pass::kForward));
      spans.push_back(collective(r, fsdp::SpanKind::kAllGather, 20 * i + 10 + 4 * r, 20 * i + 18));
    }
  }
  for (std::size_t i = 0; i < spans.size(); ++i) spans[i].id = static_cast<std::uint32_t>(i + 1);
  for (std::uint32_t i = 0; i < 16; ++i) {  // compute that waits for it: all of it is exposed
    Span after = spans[i];
    after.id = 17 + i, after.kind = fsdp::SpanKind::kCompute, after.lane = fsdp::Lane::kCompute;
    after.begin = after.end, after.end += kMillisecond, after.waits = {i + 1};
    spans.push_back(after);
  }
  for (int r = 0; r < 2; ++r) {
    Span step;
    step.id = 33 + static_cast<std::uint32_t>(r), step.rank = r, step.kind = fsdp::SpanKind::kStep;
    step.end = 80 * kMillisecond;
    spans.push_back(step);
  }
  const auto imbalance = [&](const TraceMetadata& metadata) {
    const std::string path = temporary("told.json");
    write_chrome_trace(path, spans, {"all"}, metadata);
    return analyze({path}).imbalance_pct.value_or(-1);
  };
  EXPECT_DOUBLE_EQ(imbalance({{"clock", "one"}, {"regathered", ""}}), 10) << "four times 4 of 80 ms, of one of two";
  EXPECT_DOUBLE_EQ(imbalance({{"clock", "one"}, {"regathered", "1 0"}}), 0);
  EXPECT_DOUBLE_EQ(imbalance({}), 0);
}

// Traces made elsewhere, a file a rank: each waits 6 of 20 us.
TEST(C32, RanksOfTracesMadeElsewhereAreHeldAgainstEachOther) {
  auto rank = [](int r, const char* first, const char* second, const char* arrives, const char* lasts) {
    KinetoText t;
    t.members = "\"distributedInfo\": {\"rank\": " + std::to_string(r) + ", \"world_size\": 2}";
    t.kernel("gemm", 7, "100.000", first, 1).launch("90.000", "1.000", 1);
    t.kernel("ncclDevKernel_AllReduce", 20, arrives, lasts, 2).launch("91.000", "1.000", 2);
    t.kernel("gemm", 7, "110.000", second, 3).launch("92.000", "1.000", 3);
    t.kernel("ncclDevKernel_AllReduce", 20, r == 0 ? "118.000" : "112.000", r == 0 ? "2.000" : "8.000", 4)
        .launch("93.000", "1.000", 4);
    return t.write("uneven" + std::to_string(r) + ".json");
  };
  const TraceAnalysis a =
      analyze({rank(0, "2.000", "8.000", "102.000", "8.000"), rank(1, "8.000", "2.000", "108.000", "2.000")});
  ASSERT_TRUE(a.imbalance_pct.has_value());
  EXPECT_DOUBLE_EQ(*a.imbalance_pct, 30) << "and two of transfer each time";
}

// V37: kernels of two workers, as the TensorBoard plugin of Kineto judged them: what a collective transfers is its
// shortest duration over workers, 16 of the broadcast and 1058 of the all-reduce, whatever their clocks say.
TEST(V37, TransferIsTheShortestOverWorkers) {
  auto worker = [](int r, const char* broadcast, const char* lasts, const char* reduce, const char* lasts_too) {
    KinetoText t;
    t.members = "\"distributedInfo\": {\"rank\": " + std::to_string(r) + ", \"world_size\": 2}";
    t.kernel("ncclDevKernel_Broadcast_RING_LL", 20, broadcast, lasts, 1).launch("0.100", "0.100", 1);
    t.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, reduce, lasts_too, 2).launch("0.300", "0.100", 2);
    return t.write("v37-" + std::to_string(r) + ".json");
  };
  const TraceAnalysis a = analyze(
      {worker(0, "16.000", "16.000", "162.000", "1556.000"), worker(1, "8.000", "31.000", "562.000", "1058.000")});
  ASSERT_TRUE(a.alignment && a.alignment->aligned);
  Nanos transfer = 0;
  for (const AlignedCollective& c : a.alignment->collectives) transfer += c.transfer;
  EXPECT_EQ(transfer, 1'074'000);
}

}  // namespace
}  // namespace harness::testing
