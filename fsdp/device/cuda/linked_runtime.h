// The CudaRuntime of a real GPU: cudart, LibTorch's caching allocator, our kernels.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "fsdp/device/cuda/cuda_api.h"

namespace fsdp {

// What LibTorch's caching allocator says of one GPU.
struct AllocatorFigures {
  Bytes allocated = 0, allocated_peak = 0;  // handed out
  Bytes reserved = 0, reserved_peak = 0;    // taken from the driver
  Bytes split = 0;                          // of them in blocks that cannot be given back: fragmentation
  Bytes total = 0;                          // of the GPU
  std::int64_t retries = 0;                 // allocations that had to empty the cache first
  std::int64_t ooms = 0;
};

// The driver, the GPUs: empty when there is one at least, else the sentence with the remedy.
std::string why_no_gpu();
int gpu_count();

// Makes the GPU current for this thread. One a process and GPU.
std::unique_ptr<CudaRuntime> make_linked_runtime(int gpu);
void* current_stream(int gpu);  // cudaStream_t of LibTorch's current stream
AllocatorFigures allocator_figures(int gpu);
void reset_allocator_peaks(int gpu);
// Beyond that an allocation fails. Rounded to what the allocator takes: a share of the GPU's memory.
void limit_memory(int gpu, Bytes budget);
std::map<std::string, std::string> describe_gpu(int gpu);

}  // namespace fsdp
