// CachingAllocator: what the caching allocator of PyTorch on CUDA reserves for a sequence of requests, as far as its
// public source (c10/cuda/CUDACachingAllocator.cpp, default settings) says: sizes are rounded, segments are kept and
// cut, a request that the device refuses frees the cache and asks again. A model below the counted bytes: it costs no
// time and changes none. One pool for all streams; nothing is known of other programs on the device. Plain C++.
#pragma once
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fsdp/core/memory_meter.h"

namespace harness {

class CachingAllocator final : public fsdp::MemoryObserver {
 public:
  // `limit` is the number of bytes that the device has for segments; 0 means no limit.
  explicit CachingAllocator(fsdp::Bytes limit) : limit_(limit) {}

  // removed() frees the youngest block that added() took with the same size and category; there must be one.
  void added(fsdp::Bytes n, fsdp::MemoryCategory c) override;
  void removed(fsdp::Bytes n, fsdp::MemoryCategory c) override;

  struct Peak {
    fsdp::Bytes reserved = 0;   // segments, at their highest
    fsdp::Bytes requested = 0;  // then
    fsdp::Bytes rounded = 0;    // then: what the requests take in blocks
    fsdp::Bytes rounding() const { return rounded - requested; }
    fsdp::Bytes cached() const { return reserved - rounded; }  // free, but in pieces or kept
  };
  const Peak& peak() const { return peak_; }
  fsdp::Bytes reserved() const { return reserved_; }
  // Since the last call: how often the cache was freed because the device refused, and requests that failed all the
  // same (they are then served beyond the limit, so that counting can go on).
  struct Refusals {
    int retries = 0, failures = 0;
  };
  Refusals take_refusals() { return std::exchange(refusals_, {}); }

 private:
  using Address = std::int64_t;
  struct Block {
    fsdp::Bytes size = 0;
    bool small = false, used = false;
    bool first = false, last = false;  // of its segment
    fsdp::Bytes requested = 0;
  };
  using Blocks = std::map<Address, Block>;

  Blocks::iterator find(fsdp::Bytes rounded, bool small);
  Blocks::iterator reserve(fsdp::Bytes rounded, bool small);
  void release_cached();
  void set_free(Blocks::iterator b);
  void take(Blocks::iterator b, fsdp::Bytes rounded, fsdp::Bytes requested);

  const fsdp::Bytes limit_;
  Blocks blocks_;
  std::set<std::pair<fsdp::Bytes, Address>> free_[2];  // by size; [1]: of small segments
  std::map<std::pair<fsdp::Bytes, fsdp::MemoryCategory>, std::vector<Address>> live_;
  Address next_ = 0;
  fsdp::Bytes reserved_ = 0, requested_ = 0, rounded_ = 0;
  Peak peak_;
  Refusals refusals_;
};

}  // namespace harness
