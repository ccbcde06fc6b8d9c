#include "fsdp/module/counting_allocator.h"

#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "fsdp/core/errors.h"
#include "fsdp/core/sizes.h"
#include "fsdp/module/torch.h"

namespace fsdp {
namespace {

struct Current {
  MemoryMeter* meter = nullptr;
  MemoryCategory category = MemoryCategory::kActivations;
  std::vector<std::int64_t>* trace = nullptr;
};
thread_local Current current;

struct Block {
  MemoryMeter* meter;
  Bytes size;
  MemoryCategory category;
  void* base;  // what malloc returned; null on meta
};

// No data pointer; the context carries the size. The deleter runs because the context is not null.
class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t n) override {
    if (n == 0) return {nullptr, nullptr, &release, c10::Device(c10::kMeta)};
    auto block = std::make_unique<Block>(Block{current.meter, static_cast<Bytes>(n), current.category, nullptr});
    count_block(block->meter, block->size, block->category);
    return {nullptr, block.release(), &release, c10::Device(c10::kMeta)};
  }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  static void release(void* context) {
    if (context == nullptr) return;
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    discount_block(block->meter, block->size, block->category);
  }
};

// Data equals context and raw_deleter is real: oneDNN paths of LibTorch demand both. The Block stands in front of the
// data, which starts on a cache line.
class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t n) override {
    if (n == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    count_block(current.meter, static_cast<Bytes>(n), current.category);
    void* const base = std::malloc(n + 2 * kLine);
    if (base == nullptr) {
      discount_block(current.meter, static_cast<Bytes>(n), current.category);
      throw OutOfMemory("[memory] the system has no " + readable_bytes(static_cast<Bytes>(n)) + " left", "host memory",
                        static_cast<Bytes>(n), current.meter != nullptr ? current.meter->live() : 0, 0);
    }
    auto* const data =
        reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(base) + 2 * kLine - 1) / kLine * kLine);
    new (data - kLine) Block{current.meter, static_cast<Bytes>(n), current.category, base};
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t n) const override { default_copy_data(to, from, n); }

 private:
  static constexpr std::size_t kLine = 64;
  static_assert(sizeof(Block) <= kLine);
  static void release(void* data) {
    if (data == nullptr) return;
    const Block block = *reinterpret_cast<Block*>(static_cast<char*>(data) - kLine);
    discount_block(block.meter, block.size, block.category);
    std::free(block.base);
  }
};

void keep_large_blocks() {
  constexpr int kNever = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TRIM_THRESHOLD, kNever);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace

void install_counting_allocators() {
  static std::once_flag once;
  std::call_once(once, [] {
    static HostAllocator host;
    static MetaAllocator meta;
    keep_large_blocks();
    constexpr std::uint8_t kAboveStandard = 1;
    c10::SetAllocator(at::kCPU, &host, kAboveStandard);
    c10::SetAllocator(at::kMeta, &meta, kAboveStandard);
  });
}

MeterScope::MeterScope(MemoryMeter* meter) : before_(current.meter) { current.meter = meter; }
MeterScope::~MeterScope() { current.meter = before_; }
CategoryScope::CategoryScope(MemoryCategory category) : before_(current.category) { current.category = category; }
CategoryScope::~CategoryScope() { current.category = before_; }

void count_block(MemoryMeter* meter, Bytes n, MemoryCategory c) {
  if (meter != nullptr) meter->add(n, c);
  if (current.trace != nullptr) current.trace->push_back(n);
}
void discount_block(MemoryMeter* meter, Bytes n, MemoryCategory c) {
  if (meter != nullptr) meter->sub(n, c);
  if (current.trace != nullptr) current.trace->push_back(-n);
}
MemoryMeter* current_meter() { return current.meter; }
void set_allocation_trace(std::vector<std::int64_t>* trace) { current.trace = trace; }

}  // namespace fsdp
