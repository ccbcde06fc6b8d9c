// libFuzzer's entry for one target of targets.h, SHARDSCOPE_FUZZ_TARGET. Memory is bounded as docs/trust.md says.
#include <algorithm>
#include <cstdlib>

#include "tests/fuzz/targets.h"
#include "tests/testing/heap_meter.h"

namespace {
constexpr double kFixedBytes = 8e6;  // buffers of SQLite, of zlib and of streams, which every input gets
constexpr double kBytesAByte = 100, kMostBytes = 2e9;
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  auto& heap = testing_support::HeapMeter::get();
  heap.reset();
  const auto size = static_cast<double>(harness::fuzz::SHARDSCOPE_FUZZ_TARGET(bytes, n));
  if (heap.peak() > std::min(kFixedBytes + kBytesAByte * size, kMostBytes)) std::abort();
  return 0;
}
