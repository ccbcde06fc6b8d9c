#include "harness/cost/caching_allocator.h"

#include <algorithm>

namespace harness {
namespace {

constexpr fsdp::Bytes kMiB = 1 << 20;
constexpr fsdp::Bytes kSmallest = 512, kSmallRequest = kMiB, kSmallSegment = 2 * kMiB, kMiddleSegment = 20 * kMiB,
                      kLargeRequest = 10 * kMiB, kLargeRounding = 2 * kMiB;

fsdp::Bytes up(fsdp::Bytes n, fsdp::Bytes to) { return (n + to - 1) / to * to; }
fsdp::Bytes rounded_of(fsdp::Bytes n) { return std::max(kSmallest, up(n, kSmallest)); }
fsdp::Bytes segment_of(fsdp::Bytes rounded) {
  if (rounded <= kSmallRequest) return kSmallSegment;
  return rounded < kLargeRequest ? kMiddleSegment : up(rounded, kLargeRounding);
}

}  // namespace

void CachingAllocator::added(fsdp::Bytes n, fsdp::MemoryCategory c) {
  if (n <= 0) return;
  const fsdp::Bytes rounded = rounded_of(n);
  const bool small = rounded <= kSmallRequest;
  auto block = find(rounded, small);
  if (block == blocks_.end()) block = reserve(rounded, small);
  take(block, rounded, n);
  live_[{n, c}].push_back(block->first);
}

void CachingAllocator::removed(fsdp::Bytes n, fsdp::MemoryCategory c) {
  if (n <= 0) return;
  const auto at = live_.find({n, c});
  if (at == live_.end()) return;  // added before this model was told of anything
  const auto block = blocks_.find(at->second.back());
  at->second.pop_back();
  if (at->second.empty()) live_.erase(at);
  requested_ -= block->second.requested;
  rounded_ -= block->second.size;
  set_free(block);
}

// The smallest free block that holds it.
CachingAllocator::Blocks::iterator CachingAllocator::find(fsdp::Bytes rounded, bool small) {
  auto& free = free_[small];
  const auto best = free.lower_bound({rounded, 0});
  if (best == free.end()) return blocks_.end();
  const auto block = blocks_.find(best->second);
  free.erase(best);
  return block;
}

CachingAllocator::Blocks::iterator CachingAllocator::reserve(fsdp::Bytes rounded, bool small) {
  const fsdp::Bytes segment = segment_of(rounded);
  const auto refused = [&] { return limit_ > 0 && reserved_ + segment > limit_; };
  if (refused()) {
    ++refusals_.retries;
    release_cached();
    if (refused()) ++refusals_.failures;
  }
  reserved_ += segment;
  const Address at = next_;
  next_ += segment + 1;  // segments never touch
  return blocks_.emplace(at, Block{segment, small, false, true, true, 0}).first;
}

// Segments of which nothing is used go back to the device.
void CachingAllocator::release_cached() {
  for (auto& free : free_) {
    for (auto at = free.begin(); at != free.end();) {
      const auto block = blocks_.find(at->second);
      const bool whole = block->second.first && block->second.last;
      if (whole) {
        reserved_ -= block->second.size;
        blocks_.erase(block);
      }
      at = whole ? free.erase(at) : std::next(at);
    }
  }
}

void CachingAllocator::take(Blocks::iterator b, fsdp::Bytes rounded, fsdp::Bytes requested) {
  Block& block = b->second;
  const fsdp::Bytes rest = block.size - rounded;
  if (block.small ? rest >= kSmallest : rest > kSmallRequest) {
    const Address at = b->first + rounded;
    blocks_.emplace(at, Block{rest, block.small, false, false, block.last, 0});
    free_[block.small].insert({rest, at});
    block.size = rounded;
    block.last = false;
  }
  block.used = true;
  block.requested = requested;
  requested_ += requested;
  rounded_ += block.size;
  if (reserved_ > peak_.reserved) peak_ = {reserved_, requested_, rounded_};
}

// Joined with free neighbours of its segment.
void CachingAllocator::set_free(Blocks::iterator b) {
  auto& free = free_[b->second.small];
  b->second.used = false;
  if (!b->second.last) {
    const auto next = std::next(b);
    if (!next->second.used) {
      free.erase({next->second.size, next->first});
      b->second.size += next->second.size;
      b->second.last = next->second.last;
      blocks_.erase(next);
    }
  }
  if (!b->second.first) {
    const auto before = std::prev(b);
    if (!before->second.used) {
      free.erase({before->second.size, before->first});
      before->second.size += b->second.size;
      before->second.last = b->second.last;
      blocks_.erase(b);
      b = before;
    }
  }
  free.insert({b->second.size, b->first});
}

}  // namespace harness
