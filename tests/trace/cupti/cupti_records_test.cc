#include "harness/trace/cupti_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/trace/cupti_clock.h"
#include "harness/trace/cupti_spans.h"
#include "harness/trace/cupti_tag.h"
#include "tests/trace/cupti/record_bytes.h"

namespace harness {
namespace {

using cupti::RecordBytes;
using fsdp::Lane;
using fsdp::Pass;
using fsdp::SpanKind;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CuptiRecords decoded(std::vector<std::uint8_t>& bytes, std::uint32_t version) {
  CuptiRecords out;
  decode_cupti_buffer(bytes.data(), bytes.size(), version, out);
  return out;
}

// CUDA 12.0, 12.2, 12.4, 12.8, 12.9, 13.0, 13.0 update 1.
class EveryVersion : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(CuptiRecords, EveryVersion, ::testing::Values(19, 20, 22, 26, 27, 130000, 130001));

TEST_P(EveryVersion, ABufferOfAllKindsIsReadWhole) {
  const std::uint32_t v = GetParam();
  RecordBytes b(v);
  b.external(1, 0xF500000000000001).call(cupti::kRuntimeCall, 90, 95, 1, 4711).kernel("gemm", 100, 250, 1, 7, 3);
  b.copy(cupti::kMemcpy, 300, 310, 2, 4096)
      .copy(cupti::kMemset, 320, 330, 3, 64)
      .copy(cupti::kPeerMemcpy, 340, 350, 4, 128);
  b.overhead(393216, 400, 500).call(cupti::kDriverCall, 600, 610, 5).kernel("gemm", 700, 710, 5);
  const CuptiRecords r = decoded(b.bytes(), v);
  EXPECT_FALSE(r.losses.any()) << losses_text(r.losses);
  EXPECT_EQ(r.records, 9u);
  ASSERT_EQ(r.ops.size(), 5u);
  EXPECT_EQ(r.ops[0].begin, 100);
  EXPECT_EQ(r.ops[0].end, 250);
  EXPECT_EQ(r.ops[0].device, 3u);
  EXPECT_EQ(r.ops[0].stream, 7u);
  EXPECT_EQ(r.ops[0].correlation, 1u);
  EXPECT_EQ(r.names.at(r.ops[0].name), "gemm");
  EXPECT_EQ(r.ops[1].kind, OpKind::kMemcpy);
  EXPECT_EQ(r.ops[1].bytes, 4096);
  EXPECT_EQ(r.ops[2].kind, OpKind::kMemset);
  EXPECT_EQ(r.ops[3].correlation, 4u) << "a peer copy has its correlation elsewhere";
  EXPECT_EQ(r.names, std::vector<std::string>{"gemm"}) << "one name, however often";
  ASSERT_EQ(r.calls.size(), 2u);
  EXPECT_EQ(r.calls[0].thread, 4711u);
  EXPECT_TRUE(r.calls[1].driver);
  EXPECT_EQ(r.external.at(1), 0xF500000000000001u);
  ASSERT_EQ(r.overheads.size(), 1u);
  EXPECT_EQ(r.overheads[0].end, 500);
}

TEST_P(EveryVersion, ABufferCutAtAnyByteYieldsItsWholeRecordsAndSaysThatItWasCut) {
  const std::uint32_t v = GetParam();
  RecordBytes b(v);
  b.kernel("a", 1, 2, 1).copy(cupti::kMemcpy, 3, 4, 2, 8).kernel("b", 5, 6, 3);
  const std::size_t kernel = cupti::record_size(cupti::kKernel, v), copy = cupti::record_size(cupti::kMemcpy, v);
  for (std::size_t cut = 0; cut <= b.bytes().size(); ++cut) {
    std::vector<std::uint8_t> part(b.bytes().begin(), b.bytes().begin() + static_cast<std::ptrdiff_t>(cut));
    const CuptiRecords r = decoded(part, v);
    const std::size_t whole = (cut >= kernel) + (cut >= kernel + copy) + (cut >= 2 * kernel + copy);
    const bool clean = cut == 0 || cut == kernel || cut == kernel + copy || cut == 2 * kernel + copy;
    ASSERT_EQ(r.ops.size(), whole) << cut;
    ASSERT_EQ(r.losses.truncated, clean ? 0u : 1u) << cut;
  }
}

TEST(CuptiRecords, OperationsWithoutTimesAreCountedAndLeftOut) {
  RecordBytes b(130001);
  b.kernel("a", 0, 0, 1).kernel("b", 10, 0, 2).kernel("c", 20, 10, 3).kernel("d", 30, 40, 4);
  const CuptiRecords r = decoded(b.bytes(), 130001);
  EXPECT_EQ(r.ops.size(), 1u);
  EXPECT_EQ(r.losses.no_time, 2u);
  EXPECT_EQ(r.losses.backward, 1u);
  EXPECT_EQ(losses_text(r.losses), "2 operations without times, 1 operations that end before they begin");
}

TEST(CuptiRecords, AKindThatIsNotKnownEndsTheBufferAndItsBytesAreCounted) {
  RecordBytes b(26);
  b.kernel("a", 1, 2, 1).unknown(77, 40).kernel("b", 3, 4, 2);
  const CuptiRecords r = decoded(b.bytes(), 26);
  EXPECT_EQ(r.ops.size(), 1u);
  EXPECT_EQ(r.losses.unreadable, 40u + 208u);
}

TEST(CuptiRecords, IdsOfOtherToolsAreNotOurs) {
  RecordBytes b(26);
  b.external(1, 99, 3).external(2, 0xF500000000000000);
  const CuptiRecords r = decoded(b.bytes(), 26);
  EXPECT_EQ(r.external.size(), 1u);
  EXPECT_TRUE(r.external.contains(2));
}

TEST(CuptiRecords, TheLibraryCanWalkVersionsWhoseSizesAreNotKnown) {
  // Records of 224 bytes: a kernel record that has grown.
  static constexpr std::size_t kGrown = 224;
  std::vector<std::uint8_t> grown;
  for (int i = 0; i < 3; ++i) {
    RecordBytes one(130001);
    one.kernel("k", 10 + static_cast<std::uint64_t>(i), 20, 1);
    grown.insert(grown.end(), one.bytes().begin(), one.bytes().end());
    grown.resize(grown.size() + kGrown - one.bytes().size());
  }
  const auto next = +[](std::uint8_t* buffer, std::size_t valid, void** record) -> int {
    std::uint8_t* at = *record == nullptr ? buffer : static_cast<std::uint8_t*>(*record) + kGrown;
    if (at + kGrown > buffer + valid) return cupti::kEndOfBuffer;
    *record = at;
    return cupti::kSuccess;
  };
  CuptiRecords r;
  decode_cupti_buffer(grown.data(), grown.size(), next, r);
  EXPECT_EQ(r.ops.size(), 3u);
  EXPECT_FALSE(r.losses.any());
  EXPECT_FALSE(cupti::sizes_known(130100));
  EXPECT_TRUE(cupti::sizes_known(130001));

  const auto fails = +[](std::uint8_t* buffer, std::size_t, void** record) -> int {
    if (*record != nullptr) return cupti::kInvalidKind;
    *record = buffer;
    return cupti::kSuccess;
  };
  CuptiRecords half;
  decode_cupti_buffer(grown.data(), grown.size(), fails, half);
  EXPECT_EQ(half.ops.size(), 1u);
  EXPECT_EQ(half.losses.unreadable, grown.size());
}

TEST(CuptiTag, ComesBackAsItWasPacked) {
  StepTag t;
  t.step = 65535;
  t.size = 4242;
  for (const fsdp::UnitId unit : {fsdp::kNoUnit, 0, 1, 60000}) {
    for (const Pass pass : {Pass::kNone, Pass::kForward, Pass::kBackward, Pass::kOptimizer}) {
      for (const SpanKind kind :
           {SpanKind::kCompute, SpanKind::kAllGather, SpanKind::kReduceScatter, SpanKind::kStep}) {
        t.work = {kind, unit, pass, 0};
        const auto back = unpack_tag(pack_tag(t));
        ASSERT_TRUE(back);
        EXPECT_EQ(back->work.unit, unit);
        EXPECT_EQ(back->work.pass, pass);
        EXPECT_EQ(back->work.kind, kind);
        EXPECT_EQ(back->step, 65535);
        EXPECT_EQ(back->size, 4242);
      }
    }
  }
  EXPECT_FALSE(unpack_tag(0));
  EXPECT_FALSE(unpack_tag(12345));
  EXPECT_FALSE(unpack_tag(0xF5000000000F0000)) << "no such kind";
}

TEST(SizeTable, KeepsEachSizeOnceAndHasRoomFor65535) {
  SizeTable t;
  EXPECT_EQ(t.index_of(0), 0);
  EXPECT_EQ(t.bytes_at(t.index_of(123456789012)), 123456789012);
  EXPECT_EQ(t.index_of(123456789012), t.index_of(123456789012));
  for (fsdp::Bytes b = 1; b <= 70000; ++b) t.index_of(b);
  EXPECT_EQ(t.bytes_at(t.index_of(5)), 5);
  EXPECT_EQ(t.index_of(70000), 0) << "past the table: size unknown";
  EXPECT_EQ(t.bytes_at(65535), 65534);
}

TEST(ClockMap, MapsByTheMiddleOfTheSandwichAndBoundsTheError) {
  const ClockMap clock({{1000, 500'000, 1010}});
  EXPECT_EQ(clock.to_steady(500'000), 1005);
  EXPECT_EQ(clock.to_steady(500'100), 1105);
  EXPECT_EQ(clock.to_steady(499'900), 905);
  EXPECT_EQ(clock.error(), 5);
  EXPECT_EQ(clock.drift(), 0);
}

TEST(ClockMap, OneOffsetThatAgreesWithAllSamplesKeepsDurationsExactly) {
  // Offsets in [0, 40], [10, 100], [-50, 30]: those in [10, 30] agree.
  const ClockMap clock({{100, 100, 140}, {210, 200, 300}, {250, 300, 330}});
  EXPECT_EQ(clock.error(), 10);
  EXPECT_EQ(clock.drift(), 0);
  EXPECT_EQ(clock.to_steady(100), 120);
  for (fsdp::Nanos t = 0; t < 400; t += 7) EXPECT_EQ(clock.to_steady(t + 5) - clock.to_steady(t), 5);
}

TEST(ClockMap, ADriftIsInterpolatedAndAJumpWidensTheBound) {
  // CUPTI's clock loses 100 ns in a second.
  const ClockMap clock({{0, 10'000'000'000, 20}, {1'000'000'000, 10'999'999'900, 1'000'000'020}});
  EXPECT_EQ(clock.drift(), 100);
  EXPECT_EQ(clock.error(), 10 + 50);
  EXPECT_EQ(clock.to_steady(10'000'000'000), 10);
  EXPECT_EQ(clock.to_steady(10'999'999'900), 1'000'000'010);
  EXPECT_NEAR(static_cast<double>(clock.to_steady(10'499'999'950)), 500'000'010.0, 1.0);
}

TEST(ClockMap, WithoutSamplesTimesStayAsTheyAre) {
  EXPECT_EQ(ClockMap().to_steady(42), 42);
  EXPECT_EQ(narrowest({}).width(), 0);
}

TEST(ClockSample, TheNarrowestReadingIsKept) {
  EXPECT_EQ(narrowest({{0, 1, 900}, {1000, 2, 1040}, {2000, 3, 2050}}).cupti, 2);
}

// What the true offset is, within the bound: readings with scripted delays.
TEST(ClockMap, TheTrueTimeLiesWithinTheBound) {
  constexpr fsdp::Nanos kOffset = 1'700'000'000'123;
  std::vector<ClockSample> samples;
  for (int i = 0; i < 50; ++i) {
    const fsdp::Nanos at = i * 1'000'000, early = (i * 37) % 40, late = (i * 53) % 60;
    samples.push_back({at - early, at + kOffset, at + late});
  }
  const ClockMap clock(samples);
  for (fsdp::Nanos t = 0; t < 49'000'000; t += 77'777) {
    const fsdp::Nanos error = clock.to_steady(t + kOffset) - t;
    EXPECT_LE(std::abs(error), clock.error()) << t;
  }
}

class CuptiSpans : public ::testing::Test {
 protected:
  CuptiTrace trace(std::vector<std::vector<std::uint8_t>> buffers) {
    CuptiRecords records;
    for (auto& b : buffers) decode_cupti_buffer(b.data(), b.size(), 130001, records);
    return spans_of_cupti(records, sizes, ClockMap(), 5);
  }
  std::uint64_t tag(SpanKind kind, fsdp::UnitId unit, Pass pass, fsdp::Bytes bytes, int step = 2) {
    StepTag t;
    t.work = {kind, unit, pass, bytes};
    t.step = step;
    t.size = sizes.index_of(bytes);
    return pack_tag(t);
  }
  SizeTable sizes;
};

TEST_F(CuptiSpans, HaveStepUnitPassBytesAndTheMomentOfIssue) {
  RecordBytes b(130001);
  b.external(1, tag(SpanKind::kAllGather, 3, Pass::kBackward, 1 << 20)).call(cupti::kRuntimeCall, 50, 60, 1);
  b.kernel("ncclDevKernel_AllGather_RING_LL", 100, 300, 1);
  const CuptiTrace t = trace({b.bytes()});
  ASSERT_EQ(t.spans.size(), 1u);
  const fsdp::Span& s = t.spans.front();
  EXPECT_EQ(s.id, 1u);
  EXPECT_EQ(s.rank, 5);
  EXPECT_EQ(s.step, 2);
  EXPECT_EQ(s.lane, Lane::kAllGather);
  EXPECT_EQ(s.kind, SpanKind::kAllGather);
  EXPECT_EQ(s.unit, 3);
  EXPECT_EQ(s.pass, Pass::kBackward);
  EXPECT_EQ(s.bytes, 1 << 20);
  EXPECT_EQ(s.issued, 50);
  EXPECT_EQ(s.begin, 100);
  EXPECT_EQ(s.end, 300);
  EXPECT_THAT(t.notes, IsEmpty());
}

TEST_F(CuptiSpans, DoNotDependOnTheOrderOfBuffersOrRecords) {
  RecordBytes ops(130001), rest(130001);
  ops.kernel("b", 400, 500, 2).kernel("a", 100, 300, 1);
  rest.call(cupti::kRuntimeCall, 350, 360, 2).call(cupti::kRuntimeCall, 50, 60, 1);
  rest.external(2, tag(SpanKind::kCompute, 1, Pass::kForward, 0))
      .external(1, tag(SpanKind::kCopy, 0, Pass::kForward, 64));
  const CuptiTrace x = trace({ops.bytes(), rest.bytes()}), y = trace({rest.bytes(), ops.bytes()});
  for (const CuptiTrace* t : {&x, &y}) {
    ASSERT_EQ(t->spans.size(), 2u);
    EXPECT_EQ(t->spans[0].kind, SpanKind::kCopy);
    EXPECT_EQ(t->spans[0].bytes, 64);
    EXPECT_EQ(t->spans[0].issued, 50);
    EXPECT_EQ(t->spans[1].unit, 1);
    EXPECT_EQ(t->untagged, 0u);
  }
}

TEST_F(CuptiSpans, WithoutATagTheNameDecidesAndItIsSaid) {
  RecordBytes b(130001);
  b.kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", 10, 20, 1).kernel("gemm", 30, 40, 2);
  b.copy(cupti::kMemcpy, 50, 60, 3, 256);
  const CuptiTrace t = trace({b.bytes()});
  ASSERT_EQ(t.spans.size(), 3u);
  EXPECT_EQ(t.spans[0].kind, SpanKind::kReduceScatter);
  EXPECT_EQ(t.spans[1].kind, SpanKind::kCompute);
  EXPECT_EQ(t.spans[2].kind, SpanKind::kCopy);
  EXPECT_EQ(t.spans[2].bytes, 256);
  EXPECT_EQ(t.untagged, 3u);
  EXPECT_EQ(t.unlaunched, 3u);
  EXPECT_THAT(t.notes, ElementsAre(HasSubstr("3 GPU operations were launched outside any unit"),
                                   HasSubstr("3 GPU operations have no launch call")));
}

TEST_F(CuptiSpans, OfAnOperationThatBeginsBeforeItsLaunchAreClampedAndCounted) {
  RecordBytes b(130001);
  b.call(cupti::kRuntimeCall, 105, 120, 1).kernel("a", 100, 300, 1);
  const CuptiTrace t = trace({b.bytes()});
  EXPECT_EQ(t.spans[0].issued, 100);
  EXPECT_EQ(t.early, 1u);
  EXPECT_THAT(t.notes, Contains(HasSubstr("1 GPU operations begin before their launch call")));
}

TEST_F(CuptiSpans, TheRuntimeCallIsTheLaunchWhereBothAreThere) {
  RecordBytes b(130001);
  b.call(cupti::kDriverCall, 60, 70, 1).call(cupti::kRuntimeCall, 50, 80, 1).call(cupti::kDriverCall, 61, 71, 1);
  b.kernel("a", 100, 300, 1);
  EXPECT_EQ(trace({b.bytes()}).spans[0].issued, 50);
}

TEST_F(CuptiSpans, WorkThatOnlyTheStepHoldsIsComputeOfNoUnit) {
  RecordBytes b(130001);
  b.external(1, tag(SpanKind::kStep, fsdp::kNoUnit, Pass::kNone, 0)).kernel("loss", 10, 20, 1);
  const CuptiTrace t = trace({b.bytes()});
  EXPECT_EQ(t.spans[0].kind, SpanKind::kCompute);
  EXPECT_EQ(t.spans[0].unit, fsdp::kNoUnit);
  EXPECT_EQ(t.spans[0].step, 2);
  EXPECT_EQ(t.untagged, 0u);
}

TEST_F(CuptiSpans, LossesAndOverheadsAreHandedOn) {
  RecordBytes b(130001);
  b.kernel("a", 0, 0, 1).overhead(393216, 10, 90);
  const CuptiTrace t = trace({b.bytes()});
  EXPECT_EQ(t.losses.no_time, 1u);
  EXPECT_THAT(t.overheads, ElementsAre(std::pair<fsdp::Nanos, fsdp::Nanos>{10, 90}));
  EXPECT_THAT(t.notes, ElementsAre(HasSubstr("incomplete: 1 operations without times")));
}

}  // namespace
}  // namespace harness
