// Memory of the allocator's pool of one lane, as blocks of a CudaBuffers.
#pragma once
#include "fsdp/device/cuda/cuda_buffers.h"

namespace fsdp {

class LaneMemory final : public CudaMemorySource {
 public:
  LaneMemory(CudaDevice& device, Lane lane) : device_(device), lane_(lane) {}
  void* allocate(Bytes n) override;
  // The lane's own order decides when it is used again.
  void release(void* p) noexcept override { device_.runtime().release(p, device_.stream(lane_)); }

 private:
  CudaDevice& device_;
  const Lane lane_;
};

// Scratch of a lane: as large as the largest use, whose order keeps one use from the next.
class LaneScratch {
 public:
  LaneScratch(CudaDevice& device, Lane lane) : source_(device, lane) {}
  ~LaneScratch() { clear(); }
  LaneScratch(const LaneScratch&) = delete;
  LaneScratch& operator=(const LaneScratch&) = delete;
  void* get(Bytes n);  // throws OutOfMemory
  void clear() noexcept;

 private:
  LaneMemory source_;
  void* memory_ = nullptr;
  Bytes bytes_ = 0;
};

}  // namespace fsdp
