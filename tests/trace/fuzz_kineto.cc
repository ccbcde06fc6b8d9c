// libFuzzer target: any bytes are a JSON trace, plain or gzip, of ours or of torch.profiler.
#include "tests/trace/fuzz_answer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  harness::testing::check_trace(bytes, n);
  return 0;
}
