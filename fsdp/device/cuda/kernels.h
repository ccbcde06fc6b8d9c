// C++ face of kernels.cu: raw pointers, no CUDA header. `stream` is a cudaStream_t; a call returns its cudaError_t.
#pragma once
#include "fsdp/device/cuda/cuda_api.h"

namespace fsdp::cuda_kernels {

int sum(const CudaRuntime::Sum& work, void* stream);
int paced_copy(const CudaRuntime::PacedCopy& work, void* stream);

}  // namespace fsdp::cuda_kernels
