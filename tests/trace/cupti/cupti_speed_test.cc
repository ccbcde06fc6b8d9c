#include <gtest/gtest.h>

#include <iostream>

#include "harness/trace/cupti_records.h"
#include "tests/testing/time.h"
#include "tests/trace/cupti/record_bytes.h"

namespace harness {
namespace {

// A launch as it comes: external id, call, kernel; in buffers of 4 MiB, the kernels behind. Processor time.
TEST(CuptiSpeed, AMillionRecordsAreDecodedWithinASecond) {
  constexpr std::uint32_t kVersion = 130001, kLaunches = 333'334;
  cupti::RecordBytes host(kVersion), device(kVersion);
  static const char* const kNames[] = {"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "elementwise",
                                       "softmax"};
  for (std::uint32_t i = 1; i <= kLaunches; ++i) {
    host.external(i, 0xF500000000000000 + i).call(cupti::kRuntimeCall, 10 * i, 10 * i + 5, i);
    device.kernel(kNames[i % 3], 10 * i + 2, 10 * i + 9, i);
  }
  CuptiRecords records;
  const fsdp::Nanos begin = testing_support::processor_time();
  decode_cupti_buffer(device.bytes().data(), device.bytes().size(), kVersion, records);
  decode_cupti_buffer(host.bytes().data(), host.bytes().size(), kVersion, records);
  const fsdp::Nanos elapsed = testing_support::processor_time() - begin;
  std::cout << records.records << " records in " << static_cast<double>(elapsed) * 1e-6 << " ms\n";
  EXPECT_EQ(records.records, 3u * kLaunches);
  EXPECT_EQ(records.ops.size(), kLaunches);
  EXPECT_LE(elapsed, 1'000'000'000 * testing_support::kSlowdown);
}

}  // namespace
}  // namespace harness
