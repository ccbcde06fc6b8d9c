#include "fsdp/comm/local_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fsdp/comm/local_board.h"
#include "fsdp/core/errors.h"
#include "fsdp/core/sizes.h"

namespace fsdp {
namespace {
constexpr std::uint64_t kMagic = 0x31706f6373647268;  // "hrdscop1"
constexpr Bytes kPage = 4096;

Bytes round_up(Bytes n, Bytes to) { return (n + to - 1) / to * to; }
}  // namespace

std::optional<Bytes> ArenaAllocator::allocate(Bytes n) {
  const Bytes size = round_up(n > 0 ? n : 1, kAlignment);
  const std::lock_guard lock(mutex_);
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    if (hole->second < size) continue;
    const auto [offset, room] = *hole;
    free_.erase(hole);
    if (room > size) free_[offset + size] = room - size;
    used_[offset] = size;
    return offset;
  }
  return std::nullopt;
}

void ArenaAllocator::release(Bytes offset) {
  const std::lock_guard lock(mutex_);
  const auto block = used_.find(offset);
  SHARDSCOPE_CHECK(block != used_.end(), "offset " + std::to_string(offset));
  auto hole = free_.emplace(*block).first;
  used_.erase(block);
  if (const auto next = std::next(hole); next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole != free_.begin()) {
    if (const auto previous = std::prev(hole); previous->first + previous->second == hole->first) {
      previous->second += hole->second;
      free_.erase(hole);
    }
  }
}

Bytes ArenaAllocator::used() const {
  const std::lock_guard lock(mutex_);
  Bytes sum = 0;
  for (const auto& [offset, size] : used_) sum += size;
  return sum;
}

void* ThreadMemory::allocate(Bytes n) {
  const Bytes size = round_up(n > 0 ? n : 1, ArenaAllocator::kAlignment);
  void* p = std::aligned_alloc(ArenaAllocator::kAlignment, static_cast<std::size_t>(size));
  if (p == nullptr) {
    throw EnvironmentError("[comm] no memory for a buffer of " + std::to_string(n) +
                           " B; use a smaller model or fewer ranks");
  }
  return p;
}

void ThreadMemory::release(void* p) noexcept { std::free(p); }

struct SharedMemory::Header {
  std::uint64_t magic;
  std::int32_t world, channels;
  Bytes board_bytes, arena_begin, arena_bytes;
};

int SharedMemory::create(int world, Bytes arena_bytes, int channels) {
  SHARDSCOPE_CHECK(world > 0 && channels > 0 && arena_bytes > 0,
                   std::to_string(world) + ", " + std::to_string(channels));
  Header h{};
  h.magic = kMagic, h.world = world, h.channels = channels;
  h.board_bytes = round_up(LocalBoard::bytes_for(world), kPage);
  h.arena_begin = kPage + channels * h.board_bytes;
  h.arena_bytes = round_up(arena_bytes, kPage);
  const int fd = memfd_create("shardscope", 0);
  if (fd < 0 || ftruncate(fd, h.arena_begin + world * h.arena_bytes) != 0 || pwrite(fd, &h, sizeof h, 0) != sizeof h) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) close(fd);
    throw EnvironmentError("[comm] no shared memory for " + std::to_string(world) + " ranks: " + why +
                           "; try smaller arenas or collectives: gloo");
  }
  return fd;
}

SharedMemory::SharedMemory(int fd, int rank, int world) : rank_(rank), world_(world) {
  Header h{};
  struct stat file {};
  if (pread(fd, &h, sizeof h, 0) != sizeof h || h.magic != kMagic || fstat(fd, &file) != 0) {
    throw ConfigError("[comm] descriptor " + std::to_string(fd) +
                      " is not the ranks' shared memory; pass the one that SharedMemory::create returned");
  }
  if (h.world != world || rank < 0 || rank >= world) {
    throw ConfigError("[comm] rank " + std::to_string(rank) + " of " + std::to_string(world) +
                      ": the shared memory was made for " + std::to_string(h.world) + " ranks; start as many");
  }
  size_ = file.st_size;
  void* p = mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    throw EnvironmentError("[comm] cannot map " + readable_bytes(size_) + " of shared memory: " + std::strerror(errno) +
                           "; try smaller arenas");
  }
  base_ = static_cast<std::byte*>(p);
  arena_begin_ = h.arena_begin + rank * h.arena_bytes;
  madvise(base_ + arena_begin_, static_cast<std::size_t>(h.arena_bytes), MADV_HUGEPAGE);  // where the system offers it
  arena_ = std::make_unique<ArenaAllocator>(h.arena_bytes);
}

SharedMemory::~SharedMemory() { munmap(base_, static_cast<std::size_t>(size_)); }

void* SharedMemory::allocate(Bytes n) {
  const std::optional<Bytes> offset = arena_->allocate(n);
  if (!offset) {
    throw EnvironmentError("[comm] the shared arena of rank " + std::to_string(rank_) + " has no room for " +
                           readable_bytes(n) + " (" + readable_bytes(arena_->used()) + " in use); make it larger");
  }
  return base_ + arena_begin_ + *offset;
}

void SharedMemory::release(void* p) noexcept {
  if (p != nullptr) arena_->release(static_cast<std::byte*>(p) - base_ - arena_begin_);
}

std::optional<std::uint64_t> SharedMemory::publish(const void* p) const {
  const auto address = reinterpret_cast<std::uintptr_t>(p), base = reinterpret_cast<std::uintptr_t>(base_);
  if (address < base || address >= base + static_cast<std::uintptr_t>(size_)) return std::nullopt;
  return address - base;
}

int SharedMemory::channels() const { return reinterpret_cast<const Header*>(base_)->channels; }

void* SharedMemory::board(int channel) const {
  SHARDSCOPE_CHECK(channel >= 0 && channel < channels(), "channel " + std::to_string(channel));
  return base_ + kPage + channel * reinterpret_cast<const Header*>(base_)->board_bytes;
}

}  // namespace fsdp
