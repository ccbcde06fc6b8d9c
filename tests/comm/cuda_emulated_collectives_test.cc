#include "fsdp/comm/cuda_emulated_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"
#include "tests/testing/fake_cuda.h"

namespace fsdp {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::FakeCuda;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr Wire kWire{50'000, 10'000'000'000};
constexpr Communicator kPairs{Communicator::kShard, 2}, kWorld;

class Emulated : public ::testing::Test {
 protected:
  explicit Emulated(CudaEmulatedCollectives::Options options = {.world = 4, .wire = kWire})
      : device_(fake_.runtime(0), {}), comm_(device_, options) {}
  CollectiveCall call(CollectiveKind kind, Communicator c, const float* in, float* out, Count n) {
    CollectiveCall x;
    x.kind = kind, x.communicator = c, x.unit = 1, x.in = in, x.out = out, x.count = n;
    return x;
  }
  FakeCuda fake_{1};
  CudaDevice device_;
  CudaEmulatedCollectives comm_;
};

TEST_F(Emulated, EveryRankIsTakenToHoldWhatThisOneHolds) {
  EXPECT_EQ(comm_.world(), 4);
  const float shard[] = {1, 2, 3};
  float full[6] = {}, part[3] = {10, 10, 10}, whole[2] = {5, 6};
  comm_.enqueue(Lane::kAllGather, call(CollectiveKind::kAllGather, kPairs, shard, full, 3));
  device_.wait(Lane::kReduceScatter, device_.record(Lane::kAllGather));
  CollectiveCall reduce = call(CollectiveKind::kReduceScatter, kPairs, full, part, 3);
  reduce.scale = 0.25f, reduce.accumulate = true;
  comm_.enqueue(Lane::kReduceScatter, reduce);
  comm_.enqueue(Lane::kAllReduce, call(CollectiveKind::kAllReduce, kWorld, whole, whole, 2));
  EXPECT_THAT(comm_.exchange(7), ElementsAre(7));
  EXPECT_THAT(full, ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(part, ElementsAre(10.5f, 11, 11.5f));
  EXPECT_THAT(whole, ElementsAre(20, 24));
  EXPECT_THAT(fake_.faults(), IsEmpty());
}

TEST_F(Emulated, TheKernelHoldsItsLaneAsLongAsTheNetworkWould) {
  std::vector<float> shard(1000), full(2000);
  comm_.enqueue(Lane::kAllGather, call(CollectiveKind::kAllGather, kPairs, shard.data(), full.data(), 1000));
  device_.drain();
  ASSERT_EQ(fake_.paced_copies().size(), 1u);
  const CudaRuntime::PacedCopy work = fake_.paced_copies().front();
  EXPECT_EQ(work.hold, 50'000 + 4000 * 1'000'000'000LL / kWire.bytes_per_second);  // (W - 1) / W of 8000 bytes
  EXPECT_EQ(work.bytes * work.copies, 8000);
  EXPECT_EQ(work.blocks, 8);
}

TEST_F(Emulated, OneCommunicatorRunsItsCallsInIssueOrder) {
  float a[4] = {}, b[4] = {};
  fake_.hold(0, device_.stream(Lane::kAllGather));
  comm_.enqueue(Lane::kAllGather, call(CollectiveKind::kAllGather, kPairs, a, a, 2));
  comm_.enqueue(Lane::kReduceScatter, call(CollectiveKind::kReduceScatter, kPairs, b, b, 2));
  const Event behind = device_.record(Lane::kReduceScatter);
  comm_.enqueue(Lane::kAllReduce, call(CollectiveKind::kBarrier, kWorld, nullptr, nullptr, 0));
  const Event beside = device_.record(Lane::kAllReduce);
  EXPECT_FALSE(device_.reached(behind));
  EXPECT_TRUE(device_.reached(beside));  // another communicator
  fake_.let_go(0, device_.stream(Lane::kAllGather));
  EXPECT_TRUE(device_.reached(behind));
}

class EmulatedApart : public Emulated {
 protected:
  EmulatedApart() : Emulated({.world = 2, .wire = kWire}) {}
};

TEST_F(EmulatedApart, AReduceScatterCommunicatorOfItsOwnDoesNotQueueBehindGathers) {
  float a[4] = {}, b[4] = {};
  fake_.hold(0, device_.stream(Lane::kAllGather));
  comm_.enqueue(Lane::kAllGather, call(CollectiveKind::kAllGather, Communicator::kShard, a, a, 2));
  comm_.enqueue(Lane::kReduceScatter, call(CollectiveKind::kReduceScatter, Communicator::kReduceScatter, b, b, 2));
  EXPECT_TRUE(device_.reached(device_.record(Lane::kReduceScatter)));
  fake_.let_go(0, device_.stream(Lane::kAllGather));
  device_.drain();
}

TEST(CudaEmulatedCollectives, WithoutThreadBlocksItIsRefused) {
  FakeCuda fake(1);
  CudaDevice device(fake.runtime(0), {});
  EXPECT_THAT([&] { CudaEmulatedCollectives(device, {.world = 2, .wire = kWire, .blocks = 0}); },
              ThrowsMessage<ConfigError>(HasSubstr("takes at least 1")));
}

}  // namespace
}  // namespace fsdp
