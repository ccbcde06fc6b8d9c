#include "fsdp/device/cuda/cuda_buffers.h"

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {
constexpr Bytes kGranule = 512;  // of LibTorch's caching allocator
Bytes rounded(Bytes n) { return (n + kGranule - 1) / kGranule * kGranule; }
}  // namespace

CudaBuffers::~CudaBuffers() {
  for (const auto& [block, size] : sizes_) source_.release(block);
}

void* CudaBuffers::take(Bytes n, Lane writer) {
  const Bytes size = rounded(n);
  if (const auto kept = idle_.find(size); kept != idle_.end() && !kept->second.empty()) {
    const Idle idle = kept->second.front();
    device_.wait(writer, idle.last_read);
    kept->second.pop_front();
    return idle.block;
  }
  void* block = nullptr;
  try {
    block = source_.allocate(size);
  } catch (const OutOfMemory&) {
    release_idle();
    block = source_.allocate(size);
  }
  sizes_.emplace(block, size);
  held_ += size;
  return block;
}

void CudaBuffers::give(void* block) noexcept {
  const auto known = sizes_.find(block);
  if (known == sizes_.end()) return;
  try {
    idle_[known->second].push_back({block, device_.record(Lane::kCompute)});
  } catch (...) {
    // Without an event nobody knows when it may be written again: it stays out of use until the end.
    device_.poison(std::current_exception());
  }
}

void CudaBuffers::release_idle() {
  for (auto& [size, blocks] : idle_) {
    while (!blocks.empty()) {
      device_.synchronize(blocks.front().last_read);
      source_.release(blocks.front().block);
      sizes_.erase(blocks.front().block);
      held_ -= size;
      blocks.pop_front();
    }
  }
}

}  // namespace fsdp
