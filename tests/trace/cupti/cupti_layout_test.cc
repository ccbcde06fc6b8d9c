// Holds cupti_abi.h against NVIDIA's own headers. Built where they are.
#include <cuda.h>
#include <cupti.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>

#include "harness/trace/cupti_abi.h"
#include "harness/trace/cupti_collector.h"
#include "harness/trace/cupti_records.h"
#include "tests/trace/cupti/record_bytes.h"

namespace harness {
namespace {

#if CUPTI_API_VERSION >= 130000
using Kernel = CUpti_ActivityKernel10;
#else
using Kernel = CUpti_ActivityKernel9;
#endif
using Memcpy = CUpti_ActivityMemcpy6;
using Peer = CUpti_ActivityMemcpyPtoP4;
using Memset = CUpti_ActivityMemset4;
using External = CUpti_ActivityExternalCorrelation;
using Overhead = CUpti_ActivityOverhead3;

constexpr std::uint32_t kVersion = CUPTI_API_VERSION;

// The one of the torch wheel that is built against, unless another is named.
std::optional<CuptiLibrary> real_library(std::string& why) {
#ifdef SHARDSCOPE_REAL_CUPTI
  setenv("SHARDSCOPE_CUPTI", SHARDSCOPE_REAL_CUPTI, 0);
#endif
  return load_cupti(why);
}

TEST(CuptiLayout, SizesAreThoseOfTheHeader) {
  EXPECT_EQ(cupti::record_size(cupti::kKernel, kVersion), sizeof(Kernel));
  EXPECT_EQ(cupti::record_size(cupti::kMemcpy, kVersion), sizeof(Memcpy));
  EXPECT_EQ(cupti::record_size(cupti::kPeerMemcpy, kVersion), sizeof(Peer));
  EXPECT_EQ(cupti::record_size(cupti::kMemset, kVersion), sizeof(Memset));
  EXPECT_EQ(cupti::record_size(cupti::kRuntimeCall, kVersion), sizeof(CUpti_ActivityAPI));
  EXPECT_EQ(cupti::record_size(cupti::kExternalCorrelation, kVersion), sizeof(External));
  EXPECT_EQ(cupti::record_size(cupti::kOverhead, kVersion), sizeof(Overhead));
  EXPECT_EQ(cupti::record_size(cupti::kKernel, 19), sizeof(CUpti_ActivityKernel9));
  EXPECT_EQ(cupti::record_size(cupti::kMemcpy, 19), sizeof(CUpti_ActivityMemcpy5));
  EXPECT_EQ(cupti::record_size(cupti::kOverhead, 20), sizeof(CUpti_ActivityOverhead2));
  EXPECT_EQ(cupti::record_size(cupti::kOverhead, 19), sizeof(CUpti_ActivityOverhead));
}

TEST(CuptiLayout, OffsetsAreThoseOfTheHeader) {
  EXPECT_EQ(cupti::kernel::kBegin, offsetof(Kernel, start));
  EXPECT_EQ(cupti::kernel::kEnd, offsetof(Kernel, end));
  EXPECT_EQ(cupti::kernel::kDevice, offsetof(Kernel, deviceId));
  EXPECT_EQ(cupti::kernel::kStream, offsetof(Kernel, streamId));
  EXPECT_EQ(cupti::kernel::kCorrelation, offsetof(Kernel, correlationId));
  EXPECT_EQ(cupti::kernel::kName, offsetof(Kernel, name));
  EXPECT_EQ(cupti::copy::kBytes, offsetof(Memcpy, bytes));
  EXPECT_EQ(cupti::copy::kBegin, offsetof(Memcpy, start));
  EXPECT_EQ(cupti::copy::kEnd, offsetof(Memcpy, end));
  EXPECT_EQ(cupti::copy::kDevice, offsetof(Memcpy, deviceId));
  EXPECT_EQ(cupti::copy::kStream, offsetof(Memcpy, streamId));
  EXPECT_EQ(cupti::copy::kCorrelation, offsetof(Memcpy, correlationId));
  EXPECT_EQ(cupti::copy::kBytes, offsetof(Memset, bytes));
  EXPECT_EQ(cupti::copy::kBegin, offsetof(Memset, start));
  EXPECT_EQ(cupti::copy::kStream, offsetof(Memset, streamId));
  EXPECT_EQ(cupti::copy::kCorrelation, offsetof(Memset, correlationId));
  EXPECT_EQ(cupti::copy::kBegin, offsetof(Peer, start));
  EXPECT_EQ(cupti::copy::kStream, offsetof(Peer, streamId));
  EXPECT_EQ(cupti::copy::kPeerCorrelation, offsetof(Peer, correlationId));
  EXPECT_EQ(cupti::call::kFunction, offsetof(CUpti_ActivityAPI, cbid));
  EXPECT_EQ(cupti::call::kBegin, offsetof(CUpti_ActivityAPI, start));
  EXPECT_EQ(cupti::call::kEnd, offsetof(CUpti_ActivityAPI, end));
  EXPECT_EQ(cupti::call::kThread, offsetof(CUpti_ActivityAPI, threadId));
  EXPECT_EQ(cupti::call::kCorrelation, offsetof(CUpti_ActivityAPI, correlationId));
  EXPECT_EQ(cupti::external::kExternalKind, offsetof(External, externalKind));
  EXPECT_EQ(cupti::external::kId, offsetof(External, externalId));
  EXPECT_EQ(cupti::external::kCorrelation, offsetof(External, correlationId));
  EXPECT_EQ(cupti::overhead::kReason, offsetof(Overhead, overheadKind));
  EXPECT_EQ(cupti::overhead::kBegin, offsetof(Overhead, start));
  EXPECT_EQ(cupti::overhead::kEnd, offsetof(Overhead, end));
}

TEST(CuptiLayout, NumbersAreThoseOfTheHeader) {
  EXPECT_EQ(cupti::kMemcpy, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_MEMCPY));
  EXPECT_EQ(cupti::kMemset, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_MEMSET));
  EXPECT_EQ(cupti::kSerialKernel, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_KERNEL));
  EXPECT_EQ(cupti::kKernel, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  EXPECT_EQ(cupti::kRuntimeCall, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_RUNTIME));
  EXPECT_EQ(cupti::kDriverCall, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_DRIVER));
  EXPECT_EQ(cupti::kOverhead, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_OVERHEAD));
  EXPECT_EQ(cupti::kPeerMemcpy, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_MEMCPY2));
  EXPECT_EQ(cupti::kExternalCorrelation, static_cast<unsigned>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION));
  EXPECT_EQ(cupti::kOurExternalKind, static_cast<unsigned>(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2));
  EXPECT_EQ(cupti::kFlushForced, static_cast<unsigned>(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  EXPECT_EQ(cupti::kZeroedBuffers, static_cast<unsigned>(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER));
  EXPECT_EQ(cupti::kSystemThreadIds, static_cast<unsigned>(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));
  EXPECT_EQ(cupti::kEndOfBuffer, static_cast<int>(CUPTI_ERROR_MAX_LIMIT_REACHED));
  EXPECT_EQ(cupti::kInvalidKind, static_cast<int>(CUPTI_ERROR_INVALID_KIND));
  EXPECT_EQ(cupti::kOtherSubscriber, static_cast<int>(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED));
  EXPECT_EQ(cupti::kNoPrivileges, static_cast<int>(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES));
}

TEST(CuptiLayout, TheRealLibraryWalksABufferAsWeDo) {
  std::string why;
  const auto library = real_library(why);
  if (!library) GTEST_SKIP() << why;
  cupti::RecordBytes b(library->version);
  b.kernel("a", 10, 20, 1).call(cupti::kRuntimeCall, 5, 6, 1).external(1, 0xF500000000000001);
  b.copy(cupti::kMemcpy, 30, 40, 2, 8).copy(cupti::kMemset, 50, 60, 3, 8).copy(cupti::kPeerMemcpy, 70, 80, 4, 8);
  b.overhead(1, 90, 95).kernel("b", 100, 110, 5);
  CuptiRecords ours, theirs;
  decode_cupti_buffer(b.bytes().data(), b.bytes().size(), library->version, ours);
  decode_cupti_buffer(b.bytes().data(), b.bytes().size(), library->api.next_record, theirs);
  EXPECT_EQ(ours.records, 8u);
  EXPECT_EQ(theirs.records, 8u);
  EXPECT_FALSE(theirs.losses.any()) << losses_text(theirs.losses);
  EXPECT_EQ(theirs.ops.size(), 5u);
}

TEST(CuptiLayout, WithoutADriverTheRealLibraryIsRefusedWithASentenceAndNoCrash) {
  std::string why;
  const auto library = real_library(why);
  if (!library) GTEST_SKIP() << why;
  CuptiCollector collector(*library);
  const std::string refused = collector.start();
  if (refused.empty()) {
    collector.stop(0);
    GTEST_SKIP() << "there is a driver";
  }
  EXPECT_NE(refused.find("cuptiSubscribe"), std::string::npos) << refused;
}

}  // namespace
}  // namespace harness
