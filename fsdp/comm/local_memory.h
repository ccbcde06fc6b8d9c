// LocalMemory: memory that the ranks of one machine can read from each other, and how addresses travel between them.
//   threads    any pointer is good everywhere
//   processes  one memfd mapping, inherited by descriptor: a header, boards, one arena per rank. Addresses are offsets
//   in it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "fsdp/core/types.h"

namespace fsdp {

// First fit over one range, neighbours merge when released. Bookkeeping is in the heap of this process. Thread-safe.
class ArenaAllocator {
 public:
  static constexpr Bytes kAlignment = 128;
  explicit ArenaAllocator(Bytes size) { free_[0] = size / kAlignment * kAlignment; }

  std::optional<Bytes> allocate(Bytes n);  // offset, or nothing when no hole is large enough
  void release(Bytes offset);
  Bytes used() const;

 private:
  mutable std::mutex mutex_;
  std::map<Bytes, Bytes> free_, used_;  // offset -> size
};

class LocalMemory {
 public:
  virtual ~LocalMemory() = default;
  // 128-byte aligned memory that peers can read. Throws EnvironmentError when there is no more.
  virtual void* allocate(Bytes n) = 0;
  virtual void release(void* p) noexcept = 0;
  // What to tell peers about a pointer; nothing if they could not read it.
  virtual std::optional<std::uint64_t> publish(const void* p) const = 0;
  // The pointer behind what a peer has published.
  virtual const void* resolve(std::uint64_t address) const = 0;
};

class ThreadMemory final : public LocalMemory {
 public:
  void* allocate(Bytes n) override;
  void release(void* p) noexcept override;
  std::optional<std::uint64_t> publish(const void* p) const override { return reinterpret_cast<std::uintptr_t>(p); }
  const void* resolve(std::uint64_t address) const override { return reinterpret_cast<const void*>(address); }
};

class SharedMemory final : public LocalMemory {
 public:
  // Returns the descriptor of a new mapping for `world` ranks. Nothing has a name in the file system; the memory goes
  // with the last process that maps it or holds the descriptor. It survives exec: the owner closes it after starting
  // the ranks. Pages take memory when first written, so `arena_bytes` (per rank) may exceed what the machine has.
  static int create(int world, Bytes arena_bytes, int channels = kChannels);

  // Maps it in the process of `rank`. The descriptor may be closed afterwards. Throws ConfigError if it is no such
  // mapping, or one for another number of ranks.
  SharedMemory(int fd, int rank, int world);
  ~SharedMemory() override;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void* allocate(Bytes n) override;
  void release(void* p) noexcept override;
  std::optional<std::uint64_t> publish(const void* p) const override;
  const void* resolve(std::uint64_t address) const override { return base_ + address; }

  int world() const { return world_; }
  int channels() const;
  // Memory of a LocalBoard for up to world() ranks.
  void* board(int channel) const;
  const ArenaAllocator& arena() const { return *arena_; }

  static constexpr int kChannels = 64;

 private:
  struct Header;
  const int rank_, world_;
  std::byte* base_ = nullptr;
  Bytes size_ = 0, arena_begin_ = 0;
  std::unique_ptr<ArenaAllocator> arena_;
};

}  // namespace fsdp
