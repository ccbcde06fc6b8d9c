#include "fsdp/device/cuda/linked_runtime.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "fsdp/device/cuda/kernels.h"

namespace fsdp {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

cudaStream_t stream_of(void* s) { return static_cast<cudaStream_t>(s); }
cudaEvent_t event_of(void* e) { return static_cast<cudaEvent_t>(e); }

class LinkedRuntime final : public CudaRuntime {
 public:
  explicit LinkedRuntime(int gpu) {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // the caching allocator has its devices only behind it
    check_cuda(*this, cudaSetDevice(gpu), "cudaSetDevice");
    check_cuda(*this, cudaDeviceGetStreamPriorityRange(&least_, &greatest_), "cudaDeviceGetStreamPriorityRange");
  }
  Status stream_create(Stream* stream, Priority priority) override {
    cudaStream_t s = nullptr;
    const auto status =
        cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, priority == Priority::kHigh ? greatest_ : least_);
    *stream = s;
    return status;
  }
  Status stream_destroy(Stream stream) override { return stream == nullptr ? 0 : cudaStreamDestroy(stream_of(stream)); }
  Status stream_wait_event(Stream stream, EventHandle event) override {
    return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0);
  }
  Status event_create(EventHandle* event, Timing timing) override {
    cudaEvent_t e = nullptr;
    const auto status =
        cudaEventCreateWithFlags(&e, timing == Timing::kOff ? cudaEventDisableTiming : cudaEventDefault);
    *event = e;
    return status;
  }
  Status event_destroy(EventHandle event) override { return event == nullptr ? 0 : cudaEventDestroy(event_of(event)); }
  Status event_record(EventHandle event, Stream stream) override {
    return cudaEventRecord(event_of(event), stream_of(stream));
  }
  Status event_query(EventHandle event) override { return cudaEventQuery(event_of(event)); }
  Status event_elapsed(float* ms, EventHandle begin, EventHandle end) override {
    return cudaEventElapsedTime(ms, event_of(begin), event_of(end));
  }
  Status copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream));
  }
  // Out of memory is an answer here, an exception there. The allocator has emptied its cache and tried again by then.
  Status allocate(void** memory, std::size_t bytes, Stream stream) override {
    try {
      *memory = allocator::raw_alloc_with_stream(bytes, stream_of(stream));
      return kSuccess;
    } catch (const c10::OutOfMemoryError&) {
      return kOutOfMemory;
    } catch (const std::exception&) {
      const Status last = cudaPeekAtLastError();
      return last != kSuccess ? last : static_cast<Status>(cudaErrorUnknown);
    }
  }
  Status release(void* memory, Stream) override {
    try {
      allocator::raw_delete(memory);
      return kSuccess;
    } catch (const std::exception&) {
      return cudaErrorUnknown;
    }
  }
  Status sum(const Sum& work, Stream stream) override { return cuda_kernels::sum(work, stream); }
  Status paced_copy(const PacedCopy& work, Stream stream) override { return cuda_kernels::paced_copy(work, stream); }
  std::string error_name(Status status) const override {
    const auto e = static_cast<cudaError_t>(status);
    return std::string(cudaGetErrorName(e)) + " (" + cudaGetErrorString(e) + ")";
  }

 private:
  int least_ = 0, greatest_ = 0;
};

std::string version_text(int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); }

}  // namespace

std::string why_no_gpu() {
  int n = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  if (e == cudaSuccess && n > 0) return {};
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    return "there is no NVIDIA driver here; install it, or use --device cpu, or --device virtual to predict a GPU node";
  if (e == cudaErrorInsufficientDriver)
    return "the NVIDIA driver is for CUDA " + version_text(driver) + ", LibTorch needs " + version_text(runtime) +
           "; install a newer driver";
  if (e == cudaErrorNoDevice || n == 0)
    return "there is a driver, but no GPU that this process may use; look at nvidia-smi and CUDA_VISIBLE_DEVICES";
  return std::string("cudaGetDeviceCount: ") + cudaGetErrorString(e) + "; look at nvidia-smi";
}

int gpu_count() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

std::unique_ptr<CudaRuntime> make_linked_runtime(int gpu) { return std::make_unique<LinkedRuntime>(gpu); }

void* current_stream(int gpu) { return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(gpu)).stream(); }

AllocatorFigures allocator_figures(int gpu) {
  const auto s = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  AllocatorFigures f;
  f.allocated = s.allocated_bytes[all].current, f.allocated_peak = s.allocated_bytes[all].peak;
  f.reserved = s.reserved_bytes[all].current, f.reserved_peak = s.reserved_bytes[all].peak;
  f.split = s.inactive_split_bytes[all].current;
  f.retries = s.num_alloc_retries, f.ooms = s.num_ooms;
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) f.total = static_cast<Bytes>(total);
  return f;
}

void reset_allocator_peaks(int gpu) { allocator::resetPeakStats(static_cast<c10::DeviceIndex>(gpu)); }

void limit_memory(int gpu, Bytes budget) {
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess || total == 0) return;
  allocator::setMemoryFraction(std::min(1.0, static_cast<double>(budget) / static_cast<double>(total)),
                               static_cast<c10::DeviceIndex>(gpu));
}

std::map<std::string, std::string> describe_gpu(int gpu) {
  cudaDeviceProp p{};
  int driver = 0, runtime = 0;
  if (cudaGetDeviceProperties(&p, gpu) != cudaSuccess) return {};
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  return {{"gpu", p.name},
          {"gpu_memory_bytes", std::to_string(p.totalGlobalMem)},
          {"gpu_multiprocessors", std::to_string(p.multiProcessorCount)},
          {"gpu_capability", std::to_string(p.major) + "." + std::to_string(p.minor)},
          {"cuda_runtime", version_text(runtime)},
          {"cuda_driver", version_text(driver)}};
}

}  // namespace fsdp
