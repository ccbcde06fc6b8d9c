#include "fsdp/device/cuda/lane_memory.h"

#include <utility>

#include "fsdp/core/sizes.h"

namespace fsdp {

void* LaneMemory::allocate(Bytes n) {
  void* p = nullptr;
  CudaRuntime& runtime = device_.runtime();
  const auto s = runtime.allocate(&p, static_cast<std::size_t>(n), device_.stream(lane_));
  if (s == CudaRuntime::kOutOfMemory)
    throw OutOfMemory("[memory] the GPU has no " + readable_bytes(n) + " left", "", n, 0, 0);
  check_cuda(runtime, s, "cudaMalloc");
  return p;
}

void* LaneScratch::get(Bytes n) {
  if (bytes_ >= n) return memory_;
  clear();
  memory_ = source_.allocate(n);
  bytes_ = n;
  return memory_;
}

void LaneScratch::clear() noexcept {
  if (memory_ != nullptr) source_.release(std::exchange(memory_, nullptr));
  bytes_ = 0;
}

}  // namespace fsdp
