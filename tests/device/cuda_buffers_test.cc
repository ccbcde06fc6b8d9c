#include "fsdp/device/cuda/cuda_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"
#include "fsdp/device/cuda/lane_memory.h"
#include "tests/testing/fake_cuda.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using testing::FakeCuda;
using ::testing::IsEmpty;

class CudaBuffersTest : public ::testing::Test {
 protected:
  CudaBuffersTest() : device_(fake_.runtime(0), {}), memory_(device_, Lane::kAllGather), buffers_(device_, memory_) {}
  void gather(void* block, Bytes n) {
    fake_.enqueue(0, device_.stream(Lane::kAllGather), "gather", {}, {{block, n}});
    device_.wait(Lane::kCompute, device_.record(Lane::kAllGather));
  }
  void compute(void* block, Bytes n) { fake_.enqueue(0, device_.stream(Lane::kCompute), "compute", {{block, n}}, {}); }
  FakeCuda fake_{1};
  CudaDevice device_;
  LaneMemory memory_;
  CudaBuffers buffers_;
};

TEST_F(CudaBuffersTest, ABlockIsWrittenAgainOnlyBehindItsLastReader) {
  void* first = nullptr;
  for (int i = 0; i < 100; ++i) {
    void* const block = buffers_.take(1000, Lane::kAllGather);
    if (i == 0) first = block;
    EXPECT_EQ(block, first);
    gather(block, 1000);
    compute(block, 1000);
    buffers_.give(block);
  }
  EXPECT_THAT(fake_.faults(), IsEmpty());
  EXPECT_EQ(buffers_.held(), 1024);
}

TEST_F(CudaBuffersTest, TheFakeSeesAReaderThatNobodyWaitedFor) {
  void* const block = buffers_.take(1000, Lane::kAllGather);
  gather(block, 1000);
  compute(block, 1000);
  fake_.enqueue(0, device_.stream(Lane::kAllGather), "gather", {}, {{block, 1000}});
  EXPECT_THAT(fake_.faults(), ElementsAre("gather writes what compute may still read"));
  buffers_.give(block);
}

TEST_F(CudaBuffersTest, BlocksOfOneSizeComeBackOldestFirstAndOtherSizesStayApart) {
  void* const a = buffers_.take(4096, Lane::kAllGather);
  void* const b = buffers_.take(4096, Lane::kAllGather);
  void* const c = buffers_.take(8192, Lane::kAllGather);
  buffers_.give(b), buffers_.give(c), buffers_.give(a);
  EXPECT_EQ(buffers_.take(4000, Lane::kAllGather), b);  // the same size when rounded
  EXPECT_EQ(buffers_.take(4096, Lane::kAllGather), a);
  EXPECT_EQ(buffers_.take(8192, Lane::kAllGather), c);
}

TEST_F(CudaBuffersTest, WhatLiesIdleIsGivenBackBeforeMemoryRunsOut) {
  fake_.set_capacity(10'000);
  void* const a = buffers_.take(4096, Lane::kAllGather);
  gather(a, 4096);
  compute(a, 4096);
  buffers_.give(a);
  void* const b = buffers_.take(8192, Lane::kAllGather);  // fits only without a
  EXPECT_EQ(fake_.allocated(0), 8192);
  try {
    buffers_.take(4096, Lane::kAllGather);
    FAIL() << "there is no room";
  } catch (const OutOfMemory& e) {
    EXPECT_EQ(e.requested, 4096);
  }
  buffers_.give(b);
  EXPECT_THAT(fake_.faults(), IsEmpty());
}

TEST(CudaBuffers, NothingIsLeftBehind) {
  FakeCuda fake(1);
  {
    CudaDevice device(fake.runtime(0), {});
    LaneMemory memory(device, Lane::kAllGather);
    LaneScratch scratch(device, Lane::kReduceScatter);
    CudaBuffers buffers(device, memory);
    buffers.give(buffers.take(100, Lane::kAllGather));
    buffers.take(200, Lane::kAllGather);  // the same block
    void* const first = scratch.get(100);
    EXPECT_EQ(scratch.get(50), first);
    EXPECT_NE(scratch.get(200), first);
    EXPECT_EQ(fake.live().blocks, 2);
    device.drain();
  }
  EXPECT_EQ(fake.live(), FakeCuda::Live{});
  EXPECT_THAT(fake.faults(), IsEmpty());
}

}  // namespace
}  // namespace fsdp
