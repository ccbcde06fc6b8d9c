// CudaBuffers: memory for the full parameters of units, which a comm lane fills and the compute lane reads last. Blocks
// are kept by size and handed out again in the order in which they came back; the lane that fills a block first waits
// for the event that was recorded on the compute lane when it came back. So no block is written while it may still be
// read, the host waits for nothing, and what is allocated depends on the schedule alone, not on how far the host runs
// ahead.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>

#include "fsdp/core/types.h"
#include "fsdp/device/cuda/cuda_device.h"

namespace fsdp {

// Where blocks come from: the caching allocator, or memory that a communicator has registered.
class CudaMemorySource {
 public:
  virtual ~CudaMemorySource() = default;
  virtual void* allocate(Bytes n) = 0;              // throws OutOfMemory
  virtual void release(void* memory) noexcept = 0;  // all lanes are done with it
};

class CudaBuffers {
 public:
  // Both outlive this, which must be destroyed when lanes are idle.
  CudaBuffers(CudaDevice& device, CudaMemorySource& source) : device_(device), source_(source) {}
  ~CudaBuffers();
  CudaBuffers(const CudaBuffers&) = delete;
  CudaBuffers& operator=(const CudaBuffers&) = delete;

  // A block that `writer` fills first. Out of memory: gives back what lies idle and tries once more, then OutOfMemory.
  void* take(Bytes n, Lane writer);
  // The last reader is the work issued to the compute lane so far.
  void give(void* block) noexcept;

  Bytes held() const { return held_; }  // by users and idle

 private:
  struct Idle {
    void* block;
    Event last_read;
  };
  void release_idle();

  CudaDevice& device_;
  CudaMemorySource& source_;
  std::map<Bytes, std::deque<Idle>> idle_;  // by size, oldest first
  std::unordered_map<void*, Bytes> sizes_;  // of all blocks
  Bytes held_ = 0;
};

}  // namespace fsdp
