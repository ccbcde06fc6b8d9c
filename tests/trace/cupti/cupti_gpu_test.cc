// On a real GPU: what CUPTI says of work that this test launches through the driver. Needs neither CUDA headers nor
// LibTorch.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "fsdp/core/clock.h"
#include "harness/trace/cupti_collector.h"
#include "harness/trial/gpu/gpu_watch.h"

namespace harness {
namespace {

using fsdp::Pass;
using fsdp::SpanKind;

// The few calls of the driver, by their documented signatures.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*allocate)(unsigned long long*, std::size_t) = nullptr;
  int (*release)(unsigned long long) = nullptr;
  int (*set_bytes)(unsigned long long, unsigned char, std::size_t, void*) = nullptr;
  int (*copy)(unsigned long long, unsigned long long, std::size_t, void*) = nullptr;
  int (*load)(void**, const void*) = nullptr;
  int (*function)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;
  int (*synchronize)() = nullptr;
  int (*event)(void**, unsigned) = nullptr;
  int (*record)(void*, void*) = nullptr;
  int (*elapsed)(float*, void*, void*) = nullptr;

  bool open() {
    void* l = dlopen("libcuda.so.1", RTLD_NOW);
    if (!l) return false;
    const auto take = [l](auto*& f, const char* name) {
      return (f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(l, name))) != nullptr;
    };
    return take(init, "cuInit") && take(retain, "cuDevicePrimaryCtxRetain") && take(set_current, "cuCtxSetCurrent") &&
           take(allocate, "cuMemAlloc_v2") && take(release, "cuMemFree_v2") && take(set_bytes, "cuMemsetD8Async") &&
           take(copy, "cuMemcpyDtoDAsync_v2") && take(load, "cuModuleLoadData") &&
           take(function, "cuModuleGetFunction") && take(launch, "cuLaunchKernel") &&
           take(synchronize, "cuCtxSynchronize") && take(event, "cuEventCreate") && take(record, "cuEventRecord") &&
           take(elapsed, "cuEventElapsedTime") && init(0) == 0;
  }
};

// Spins for a number of clock cycles.
constexpr const char* kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 cycles) {
  .reg .u64 %begin, %now, %wanted; .reg .pred %p;
  ld.param.u64 %wanted, [cycles];
  mov.u64 %begin, %clock64;
again:
  mov.u64 %now, %clock64;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %p, %now, %wanted;
  @%p bra again;
  ret;
}
)";

class CuptiOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!driver.open()) GTEST_SKIP() << "no GPU: libcuda.so.1 is not there or finds none";
    std::string why;
    const auto library = load_cupti(why);
    if (!library) GTEST_SKIP() << why;
    collector = std::make_unique<CuptiCollector>(*library);
    ASSERT_EQ(driver.retain(&context, 0), 0);
    ASSERT_EQ(driver.set_current(context), 0);
    void* module = nullptr;
    ASSERT_EQ(driver.load(&module, kPtx), 0);
    ASSERT_EQ(driver.function(&spin, module, "spin"), 0);
    ASSERT_EQ(driver.allocate(&memory, kBytes), 0);
    launch(1000);
    ASSERT_EQ(driver.synchronize(), 0);
  }
  void TearDown() override {
    if (memory) driver.release(memory);
  }
  void launch(unsigned long long cycles) {
    void* arguments[] = {&cycles};
    ASSERT_EQ(driver.launch(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), 0);
  }
  void start() {
    const std::string why = collector->start();
    if (!why.empty()) GTEST_SKIP() << why;
  }
  static constexpr std::size_t kBytes = 64 << 20;
  Driver driver;
  std::unique_ptr<CuptiCollector> collector;
  void *context = nullptr, *spin = nullptr;
  unsigned long long memory = 0;
};

TEST_F(CuptiOnAGpu, EveryOperationComesBackWithItsTagInsideTheTimeOnOurClock) {
  start();
  if (IsSkipped()) return;
  const fsdp::Nanos before = fsdp::steady_now();
  {
    const fsdp::ScopedRange range(&collector->tags(), {SpanKind::kCompute, 2, Pass::kForward, 0}, 1);
    launch(2'000'000);
  }
  {
    const fsdp::ScopedRange range(&collector->tags(), {SpanKind::kCopy, 3, Pass::kBackward, kBytes / 2}, 1);
    ASSERT_EQ(driver.copy(memory, memory + kBytes / 2, kBytes / 2, nullptr), 0);
  }
  ASSERT_EQ(driver.set_bytes(memory, 0, kBytes, nullptr), 0);
  ASSERT_EQ(driver.synchronize(), 0);
  const fsdp::Nanos after = fsdp::steady_now();
  const CuptiTrace t = collector->stop(0);
  ASSERT_EQ(t.spans.size(), 3u);
  EXPECT_FALSE(t.losses.any()) << losses_text(t.losses);
  EXPECT_EQ(t.untagged, 1u) << "the memset";
  EXPECT_EQ(t.spans[0].unit, 2);
  EXPECT_EQ(t.spans[0].step, 1);
  EXPECT_EQ(t.spans[1].kind, SpanKind::kCopy);
  EXPECT_EQ(t.spans[1].bytes, static_cast<fsdp::Bytes>(kBytes / 2));
  std::cout << "clock error at most " << t.clock_error << " ns\n";
  // CUPTI converts GPU times by interpolation: a microsecond more than the bound of the clocks alone.
  const fsdp::Nanos slack = t.clock_error + 20'000;
  for (const fsdp::Span& s : t.spans) {
    EXPECT_GE(s.begin, before - slack);
    EXPECT_LE(s.end, after + slack);
    EXPECT_LE(s.issued, s.begin);
  }
}

TEST_F(CuptiOnAGpu, DurationsAgreeWithEvents) {
  start();
  if (IsSkipped()) return;
  void *first = nullptr, *last = nullptr;
  ASSERT_EQ(driver.event(&first, 0), 0);
  ASSERT_EQ(driver.event(&last, 0), 0);
  ASSERT_EQ(driver.record(first, nullptr), 0);
  for (int i = 0; i < 10; ++i) launch(5'000'000);
  ASSERT_EQ(driver.record(last, nullptr), 0);
  ASSERT_EQ(driver.synchronize(), 0);
  float ms = 0;
  ASSERT_EQ(driver.elapsed(&ms, first, last), 0);
  const CuptiTrace t = collector->stop(0);
  ASSERT_EQ(t.spans.size(), 10u);
  const double by_cupti = static_cast<double>(t.spans.back().end - t.spans.front().begin) * 1e-6;
  std::cout << by_cupti << " ms by CUPTI, " << ms << " ms by events\n";
  EXPECT_NEAR(by_cupti / static_cast<double>(ms), 1.0, 0.02);
}

TEST_F(CuptiOnAGpu, ManyLaunchesAreAllThere) {
  start();
  if (IsSkipped()) return;
  constexpr int kLaunches = 50'000;
  for (int i = 0; i < kLaunches; ++i) launch(1);
  ASSERT_EQ(driver.synchronize(), 0);
  const CuptiTrace t = collector->stop(0);
  EXPECT_FALSE(t.losses.any()) << losses_text(t.losses);
  EXPECT_EQ(t.spans.size(), static_cast<std::size_t>(kLaunches));
}

TEST(NvmlOnAGpu, TellsClocksPowerAndHeat) {
  std::string why;
  auto nvml = Nvml::open(why);
  if (!nvml || nvml->gpus().empty()) GTEST_SKIP() << (why.empty() ? "no GPU" : why);
  GpuWatch watch(std::move(nvml));
  const GpuReport r = watch.finish();
  for (const auto& [name, value] : r.fields) std::cout << name << " = " << value << "\n";
  for (const char* name : {"gpu", "gpu_count", "gpu_driver", "machine.gpu0.temperature_c", "machine.gpu0.sm_mhz"})
    EXPECT_TRUE(r.fields.contains(name)) << name;
}

}  // namespace
}  // namespace harness
