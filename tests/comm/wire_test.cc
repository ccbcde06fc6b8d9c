#include "fsdp/comm/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Nanos kMicrosecond = 1'000;
constexpr std::int64_t kGigabyte = 1'000'000'000;

CollectiveCall call_of(CollectiveKind kind, Count count, Dtype dtype = Dtype::kFloat32) {
  CollectiveCall c;
  c.kind = kind, c.count = count, c.in_dtype = dtype;
  return c;
}

TEST(WireTime, AShardedBufferTravelsWithoutTheOwnPiece) {
  // 4 ranks, pieces of 1,000 floats: each sends 3 x 4,000 B; at 1 GB/s a byte takes a nanosecond.
  EXPECT_EQ(wire_time(call_of(CollectiveKind::kAllGather, 1000), 4, {50 * kMicrosecond, kGigabyte}), 50'000 + 12'000);
  EXPECT_EQ(wire_time(call_of(CollectiveKind::kReduceScatter, 1000), 4, {50 * kMicrosecond, kGigabyte}),
            50'000 + 12'000);
}

TEST(WireTime, TheTravellingDtypeCounts) {
  EXPECT_EQ(wire_time(call_of(CollectiveKind::kReduceScatter, 1000, Dtype::kBFloat16), 4, {0, kGigabyte}), 6'000);
}

TEST(WireTime, AnAllReduceIsAReduceScatterAndAnAllGather) {
  EXPECT_EQ(wire_time(call_of(CollectiveKind::kAllReduce, 4000), 4, {7, kGigabyte}), 7 + 2 * 12'000);
}

TEST(WireTime, ABroadcastTravelsWholeAndABarrierIsLatency) {
  EXPECT_EQ(wire_time(call_of(CollectiveKind::kBroadcast, 1000), 4, {7, kGigabyte}), 7 + 4'000);
  EXPECT_EQ(wire_time(call_of(CollectiveKind::kBarrier, 0), 4, {7, kGigabyte}), 7);
}

TEST(WireTime, OneRankNeedsNoWire) {
  for (const auto kind :
       {CollectiveKind::kAllGather, CollectiveKind::kAllReduce, CollectiveKind::kBroadcast, CollectiveKind::kBarrier}) {
    EXPECT_EQ(wire_time(call_of(kind, 1000), 1, {50 * kMicrosecond, kGigabyte}), 0);
  }
}

TEST(WireTime, LargeBuffersDoNotOverflow) {
  // 8 GiB on 1,024 ranks at 1 kB/s: bytes times ranks times nanoseconds pass 64 bits on the way, the result does not.
  EXPECT_EQ(wire_time(call_of(CollectiveKind::kAllReduce, Count{1} << 31), 1024, {0, 1000}),
            (Nanos{1} << 24) * 1023 * 1'000'000);
}

// A transport of two ranks that is done at once; its last rank arrived `ago` before.
class InstantTransport final : public Transport {
 public:
  explicit InstantTransport(Nanos ago) : ago_(ago) {}
  int rank() const override { return 0; }
  int world() const override { return 2; }
  Nanos run(const CollectiveCall&) override { return steady_now() - ago_; }
  std::vector<std::uint64_t> exchange(std::uint64_t v) override { return {v, v}; }
  void* allocate(Bytes) override { return nullptr; }
  void release(void*) noexcept override {}
  void abort(const std::string&) noexcept override {}

 private:
  Nanos ago_;
};

TEST(EmulatedWire, HoldsTheThreadUntilTheWireIsDone) {
  EmulatedWire wire(std::make_unique<InstantTransport>(0), {2'000 * kMicrosecond, kGigabyte});
  const Nanos arrival = wire.run(call_of(CollectiveKind::kBarrier, 0));
  EXPECT_GE(steady_now(), arrival + 2'000 * kMicrosecond);
}

TEST(EmulatedWire, CountsFromTheLastArrival) {
  constexpr Nanos kHour = 3'600'000'000'000;
  EmulatedWire wire(std::make_unique<InstantTransport>(kHour), {kHour, kGigabyte});
  const Nanos begin = steady_now();
  wire.run(call_of(CollectiveKind::kBarrier, 0));  // an hour of latency, all of it over
  EXPECT_LT(steady_now() - begin, kHour / 2);
}

TEST(EmulatedWire, RefusesAWireWithoutBandwidth) {
  EXPECT_THAT(
      [] {
        EmulatedWire(std::make_unique<InstantTransport>(0), {0, 0});
      },
      ThrowsMessage<ConfigError>(HasSubstr("a bandwidth of at least 1 B/s")));
}

}  // namespace
}  // namespace fsdp
