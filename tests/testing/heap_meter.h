// How much of the heap something takes, in a program with a sanitizer, whose allocator can be watched.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

// These belong to the sanitizers' allocator; without one they are absent, and nothing is seen.
extern "C" {
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                                    void (*)(const volatile void*));
__attribute__((weak)) std::size_t __sanitizer_get_allocated_size(const volatile void*);
}

namespace testing_support {

// Bytes on the heap, and the most since reset().
class HeapMeter {
 public:
  static HeapMeter& get() {
    static HeapMeter meter;
    return meter;
  }
  void reset() { base_ = live_.load(), peak_ = 0; }
  double peak() const { return static_cast<double>(peak_); }

 private:
  HeapMeter() {
    if (__sanitizer_install_malloc_and_free_hooks != nullptr) {
      __sanitizer_install_malloc_and_free_hooks(
          [](const volatile void*, std::size_t n) {
            const auto now = static_cast<std::int64_t>(live_ += static_cast<std::int64_t>(n)) - base_;
            if (now > peak_) peak_ = now;
          },
          [](const volatile void* p) { live_ -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(p)); });
    }
  }
  static inline std::atomic<std::int64_t> live_{0};
  static inline std::int64_t base_ = 0, peak_ = 0;
};

}  // namespace testing_support
