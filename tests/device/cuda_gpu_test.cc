// On a GPU: the device conformance suite, the kernels, the allocator. Without one everything here is skipped, but for
// the sentence that says so.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "fsdp/comm/local_kernels.h"
#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "fsdp/device/cuda/cuda_buffers.h"
#include "fsdp/device/cuda/lane_memory.h"
#include "fsdp/device/cuda/linked_runtime.h"
#include "fsdp/module/cuda_world.h"
#include "tests/device/device_suite.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class GpuBench final : public DeviceBench {
 public:
  explicit GpuBench(Nanos timeout)
      : runtime_(make_linked_runtime(0)), device_(*runtime_, {.timeout = timeout, .compute = current_stream(0)}) {}
  Device& device() override { return device_; }
  void put(Lane lane, const WorkTag& tag, std::function<void()> work) override {
    device_.submit(lane, tag, [&](CudaRuntime::Stream s) { launch(s, std::move(work)); });
  }
  void put_failing(Lane lane, const WorkTag& tag) override {
    device_.submit(lane, tag, [](CudaRuntime::Stream) { throw CommError("[test] peer gone"); });
  }
  void compute(std::function<void()> work) override { launch(device_.stream(Lane::kCompute), std::move(work)); }
  void hold(Lane lane, const WorkTag& tag) override {
    put(lane, tag, [open = open_] { open->get_future().wait(); });
  }
  void let_go(Lane) override { open_->set_value(); }

 private:
  static void launch(CudaRuntime::Stream s, std::function<void()> work) {
    const auto run = [](void* p) {
      const std::unique_ptr<std::function<void()>> f(static_cast<std::function<void()>*>(p));
      (*f)();
    };
    if (cudaLaunchHostFunc(static_cast<cudaStream_t>(s), run, new std::function<void()>(std::move(work))) !=
        cudaSuccess)
      throw Error("[test] cudaLaunchHostFunc");
  }
  std::shared_ptr<std::promise<void>> open_ = std::make_shared<std::promise<void>>();
  std::unique_ptr<CudaRuntime> runtime_;
  CudaDevice device_;
};

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    runtime_ = make_linked_runtime(0);
    device_ = std::make_unique<CudaDevice>(*runtime_, CudaDevice::Options{.compute = current_stream(0)});
  }
  // A vector on the GPU and back.
  template <class T>
  void* to_gpu(const std::vector<T>& v) {
    void* p = nullptr;
    check_cuda(*runtime_, runtime_->allocate(&p, v.size() * sizeof(T), nullptr), "allocate");
    check_cuda(*runtime_, runtime_->copy(p, v.data(), v.size() * sizeof(T), nullptr), "copy");
    return p;
  }
  template <class T>
  std::vector<T> from_gpu(const void* p, std::size_t n) {
    std::vector<T> v(n);
    check_cuda(*runtime_, runtime_->copy(v.data(), p, n * sizeof(T), nullptr), "copy");
    device_->drain();
    return v;
  }
  std::unique_ptr<CudaRuntime> runtime_;
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(OnGpu, TheSumKernelGivesTheBitsOfTheHost) {
  constexpr std::size_t n = 10'007;
  std::vector<float> a(n), b(n), out(n);
  for (std::size_t i = 0; i < n; ++i)
    a[i] = 1.0e8f / static_cast<float>(i + 1), b[i] = static_cast<float>(i % 97) - 0.3f, out[i] = static_cast<float>(i);
  void* in[2] = {to_gpu(a), to_gpu(b)};
  void* const to = to_gpu(out);
  CudaRuntime::Sum work;
  work.in = in, work.inputs = 2, work.out = to, work.count = n, work.scale = 0.3f, work.accumulate = true;
  check_cuda(*runtime_, runtime_->sum(work, nullptr), "sum");
  const auto got = from_gpu<float>(to, n);
  for (std::size_t i = 0; i < n; ++i) {
    volatile float sum = a[i] + b[i];
    volatile float scaled = 0.3f * sum;
    ASSERT_EQ(got[i], static_cast<float>(i) + scaled) << i;
  }
  for (void* p : {in[0], in[1], to}) runtime_->release(p, nullptr);
}

TEST_F(OnGpu, ThePacedCopyCopiesAndTakesItsTime) {
  std::vector<float> from(100'003, 3.5f), to(300'009, 0.0f);
  void* const in = to_gpu(from);
  void* const out = to_gpu(to);
  device_->drain();
  constexpr Nanos kHold = 5'000'000;
  const Nanos begin = steady_now();
  check_cuda(
      *runtime_,
      runtime_->paced_copy({.to = out, .from = in, .bytes = 400'012, .copies = 3, .hold = kHold, .blocks = 4}, nullptr),
      "paced copy");
  device_->drain();
  const Nanos took = steady_now() - begin;
  EXPECT_GE(took, kHold);
  EXPECT_LE(took, 3 * kHold);
  const auto got = from_gpu<float>(out, to.size());
  EXPECT_EQ(std::count(got.begin(), got.end(), 3.5f), static_cast<std::ptrdiff_t>(got.size()));
  runtime_->release(in, nullptr), runtime_->release(out, nullptr);
}

TEST_F(OnGpu, MemoryBeyondTheGpuIsAnAnswerWithFigures) {
  LaneMemory memory(*device_, Lane::kAllGather);
  const AllocatorFigures before = allocator_figures(0);
  EXPECT_THROW(memory.allocate(4 * before.total), OutOfMemory);
  EXPECT_GT(allocator_figures(0).ooms, before.ooms);
  CudaBuffers buffers(*device_, memory);
  void* const p = buffers.take(1 << 20, Lane::kAllGather);
  EXPECT_GE(allocator_figures(0).allocated, before.allocated + (1 << 20));
  buffers.give(p);
  device_->drain();
}

TEST(CudaModule, SaysWhatIsMissingWithItsTypeAcrossTheBoundary) {
  void* const library = dlopen(SHARDSCOPE_CUDA_MODULE, RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto entry = reinterpret_cast<CudaModuleEntry>(dlsym(library, kCudaModuleEntry));
  ASSERT_NE(entry, nullptr);
  const std::unique_ptr<CudaModule> module(entry());
  if (why_no_gpu().empty()) GTEST_SKIP() << "there is a GPU here";
  EXPECT_THAT([&] { module->open({.timeout = 1'000'000'000}, nullptr); },
              ThrowsMessage<EnvironmentError>(HasSubstr("[device] " + why_no_gpu())));
}

}  // namespace

std::vector<DeviceWorld> devices_under_test() {
  DeviceWorld gpu{"Gpu", [](Nanos t) { return std::make_unique<GpuBench>(t); }};
  gpu.why_not = why_no_gpu();
  return {gpu};
}

}  // namespace fsdp::testing
