// The fake is only as good as what it catches: each misuse once, and the right use beside it.
#include "tests/testing/fake_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Timing = CudaRuntime::Timing;

class FakeCudaTest : public ::testing::Test {
 protected:
  FakeCudaTest() {
    r.stream_create(&a, CudaRuntime::Priority::kHigh);
    r.stream_create(&b, CudaRuntime::Priority::kHigh);
    r.event_create(&e, Timing::kOff);
    r.allocate(&p, 64, a);
  }
  void work(CudaRuntime::Stream s, const char* what, std::vector<FakeCuda::Range> reads,
            std::vector<FakeCuda::Range> writes) {
    fake.enqueue(0, s, what, reads, writes);
  }
  FakeCuda::Range all() const { return {p, 64}; }
  FakeCuda fake{2};
  CudaRuntime& r = fake.runtime(0);
  CudaRuntime::Stream a = nullptr, b = nullptr;
  CudaRuntime::EventHandle e = nullptr;
  void* p = nullptr;
};

TEST_F(FakeCudaTest, AReadThatWaitedForTheEventIsFine) {
  work(a, "write", {}, {all()});
  r.event_record(e, a);
  r.stream_wait_event(b, e);
  work(b, "read", {all()}, {});
  EXPECT_THAT(fake.faults(), IsEmpty());
}

TEST_F(FakeCudaTest, AReadOnAnotherStreamWithoutAnEventIsAFault) {
  work(a, "write", {}, {all()});
  work(b, "read", {all()}, {});
  EXPECT_THAT(fake.faults(), ElementsAre("read reads what write may still write"));
}

TEST_F(FakeCudaTest, AnEventRecordedTooEarlyDoesNotHelp) {
  r.event_record(e, a);
  work(a, "write", {}, {all()});
  r.stream_wait_event(b, e);
  work(b, "read", {all()}, {});
  EXPECT_THAT(fake.faults(), ElementsAre("read reads what write may still write"));
}

TEST_F(FakeCudaTest, OrderPassesThroughAThirdStreamAndThroughTheHost) {
  CudaRuntime::Stream c = nullptr;
  r.stream_create(&c, CudaRuntime::Priority::kNormal);
  work(a, "write", {}, {all()});
  r.event_record(e, a);
  r.stream_wait_event(c, e);
  CudaRuntime::EventHandle f = nullptr;
  r.event_create(&f, Timing::kOff);
  r.event_record(f, c);
  r.stream_wait_event(b, f);
  work(b, "write again", {}, {all()});
  CudaRuntime::EventHandle g = nullptr;
  r.event_create(&g, Timing::kOff);
  r.event_record(g, b);
  while (r.event_query(g) == CudaRuntime::kNotReady) {
  }
  work(c, "write a third time", {}, {all()});
  EXPECT_THAT(fake.faults(), IsEmpty());
}

TEST_F(FakeCudaTest, PartsThatDoNotOverlapDoNotConflict) {
  auto* const bytes = static_cast<std::byte*>(p);
  work(a, "write", {}, {{bytes, 32}});
  work(b, "write", {}, {{bytes + 32, 32}});
  EXPECT_THAT(fake.faults(), IsEmpty());
  work(b, "write both", {}, {all()});
  EXPECT_THAT(fake.faults(), ElementsAre("write both writes what write may still write"));
}

TEST_F(FakeCudaTest, MemoryGivenBackWhileAnotherStreamReadsItIsAFault) {
  work(a, "write", {}, {all()});
  r.event_record(e, a);
  r.stream_wait_event(b, e);
  work(b, "read", {all()}, {});
  r.release(p, a);
  EXPECT_THAT(fake.faults(), ElementsAre("cudaFree writes what read may still read"));
}

TEST_F(FakeCudaTest, MemoryUsedAfterItWasGivenBackIsAFault) {
  r.release(p, a);
  work(a, "read", {all()}, {});
  r.release(p, a);
  EXPECT_THAT(fake.faults(),
              ElementsAre("read uses memory that was given back", "cudaFree of memory that is not there"));
}

TEST_F(FakeCudaTest, AccessPastTheEndAndUnknownHandlesAreFaults) {
  work(a, "read", {{p, 65}}, {});
  r.event_destroy(e);
  r.event_record(e, a);
  r.stream_destroy(b);
  r.event_query(e);
  int nothing = 0;
  r.stream_wait_event(&nothing, e);
  EXPECT_THAT(fake.faults(),
              ElementsAre("read goes past the end of its memory", "cudaEventRecord of an event that does not exist",
                          "cudaEventQuery of an event that does not exist",
                          "cudaStreamWaitEvent on a stream that does not exist",
                          "cudaStreamWaitEvent of an event that does not exist"));
}

TEST_F(FakeCudaTest, CollectivesThatDoNotMatchAreAFaultAndNeverEnd) {
  NcclLibrary::UniqueId id{};
  ASSERT_EQ(fake.nccl(0).get_unique_id(&id), NcclLibrary::kSuccess);
  NcclLibrary::Comm comm[2];
  void* memory[2];
  CudaRuntime::EventHandle done[2];
  for (int k = 0; k < 2; ++k) {
    fake.nccl(k).comm_init(&comm[k], 2, id, k, {});
    fake.runtime(k).allocate(&memory[k], 64, nullptr);
    fake.runtime(k).event_create(&done[k], Timing::kOff);
  }
  fake.nccl(0).all_reduce(memory[0], memory[0], 4, Dtype::kFloat32, NcclLibrary::Op::kSum, comm[0], nullptr);
  fake.nccl(1).all_reduce(memory[1], memory[1], 8, Dtype::kFloat32, NcclLibrary::Op::kSum, comm[1], nullptr);
  fake.runtime(0).event_record(done[0], nullptr);
  EXPECT_EQ(fake.runtime(0).event_query(done[0]), CudaRuntime::kNotReady);
  EXPECT_THAT(fake.faults(),
              ElementsAre("collectives do not match: ncclAllReduce of 4 x fp32, ncclAllReduce of 8 x fp32"));
  fake.nccl(0).comm_abort(comm[0]);
  EXPECT_EQ(fake.runtime(0).event_query(done[0]), CudaRuntime::kSuccess);  // its stream goes on
}

TEST_F(FakeCudaTest, ACallFailsOnceAndLiveCountsWhatIsThere) {
  const FakeCuda::Live before = fake.live();
  EXPECT_EQ(before, (FakeCuda::Live{.streams = 2, .events = 1, .blocks = 1}));
  fake.fail_call(0, "cudaMalloc", fake.calls(0)["cudaMalloc"]);
  void* q = nullptr;
  EXPECT_NE(r.allocate(&q, 8, a), CudaRuntime::kSuccess);
  EXPECT_EQ(fake.failed_call(), "cudaMalloc");
  EXPECT_EQ(fake.live(), before);
  EXPECT_EQ(r.allocate(&q, 8, a), CudaRuntime::kSuccess);
}

}  // namespace
}  // namespace fsdp::testing
