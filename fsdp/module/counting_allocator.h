// Counting allocators for LibTorch's CPU and meta tensors: every byte that a tensor owns is counted into the
// MemoryMeter that is current on the allocating thread, under the current category. A block remembers both, so a free
// from anywhere is credited to its owner; a meter must therefore outlive the tensors made under it. Without a current
// meter nothing is counted. Passing the meter's budget throws fsdp::OutOfMemory out of the operator that asked; it
// leaves backward() as itself.
#pragma once
#include <cstdint>
#include <vector>

#include "fsdp/core/memory_meter.h"

namespace fsdp {

// Puts the allocators in place, once per process, before the first tensor is made: tensors made earlier stay with the
// allocators they came from. Also tells malloc to keep large blocks for reuse instead of giving them back to the
// system: a step asks for the same sizes again and again, and fresh pages cost more than what is done with them.
void install_counting_allocators();

// The current thread counts into `meter` (null: nowhere) while this lives.
class MeterScope {
 public:
  explicit MeterScope(MemoryMeter* meter);
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  MemoryMeter* before_;
};

// What the current thread's tensors are counted as while this lives; kActivations where there is no scope.
class CategoryScope {
 public:
  explicit CategoryScope(MemoryCategory category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  MemoryCategory before_;
};

// For memory that a tensor wraps but no allocator made (buffers of a transport). `add` throws OutOfMemory.
void count_block(MemoryMeter* meter, Bytes n, MemoryCategory c);
void discount_block(MemoryMeter* meter, Bytes n, MemoryCategory c);
MemoryMeter* current_meter();

// Writes +n for each allocation and -n for each free of the current thread into `trace` (null: off), counted or not.
// For tests that hold the host and the meta world against each other.
void set_allocation_trace(std::vector<std::int64_t>* trace);

}  // namespace fsdp
