#include "fsdp/device/cuda/kernels.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace fsdp::cuda_kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 2048;

__device__ float load(const float* p, std::int64_t i) { return p[i]; }
__device__ float load(const __nv_bfloat16* p, std::int64_t i) { return __bfloat162float(p[i]); }
__device__ void store(float* p, std::int64_t i, float v) { p[i] = v; }
__device__ void store(__nv_bfloat16* p, std::int64_t i, float v) { p[i] = __float2bfloat16_rn(v); }

template <class In>
struct Inputs {
  const In* p[CudaRuntime::kMostInputs];
  int n;
};

// Products and sums apart, as on the host: a fused multiply-add would round once less.
template <class In, class Out>
__global__ void sum_kernel(Inputs<In> in, Out* out, std::int64_t count, float scale, bool accumulate,
                           const float* addend) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    float sum = load(in.p[0], i);
    for (int k = 1; k < in.n; ++k) sum = __fadd_rn(sum, load(in.p[k], i));
    sum = __fmul_rn(scale, sum);
    if (addend != nullptr) sum = __fadd_rn(addend[i], sum);
    store(out, i, accumulate ? __fadd_rn(load(out, i), sum) : sum);
  }
}

template <class In, class Out>
int launch_sum(const CudaRuntime::Sum& w, cudaStream_t stream) {
  Inputs<In> in{};
  in.n = w.inputs;
  for (int k = 0; k < w.inputs; ++k) in.p[k] = static_cast<const In*>(w.in[k]);
  const auto blocks =
      static_cast<unsigned>(std::clamp<std::int64_t>((w.count + kThreads - 1) / kThreads, 1, kMostBlocks));
  sum_kernel<In, Out>
      <<<blocks, kThreads, 0, stream>>>(in, static_cast<Out*>(w.out), w.count, w.scale, w.accumulate, w.addend);
  return cudaGetLastError();
}

__device__ std::uint64_t nanoseconds() {
  std::uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Each block copies its part in pieces, and no piece before its share of the time: bytes flow as they would through a
// link of that bandwidth, and the block's multiprocessor is taken until the end.
__global__ void paced_copy_kernel(std::byte* to, const std::byte* from, std::int64_t bytes, int copies,
                                  std::uint64_t hold) {
  constexpr std::int64_t kPiece = 64 * 1024;
  const std::uint64_t begin = nanoseconds();
  const std::int64_t total = bytes * copies;
  const std::int64_t pieces = (total + kPiece - 1) / kPiece;
  const bool wide = ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) |
                      static_cast<std::uintptr_t>(bytes)) &
                     15) == 0;
  for (std::int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const std::int64_t first = piece * kPiece, last = first + kPiece < total ? first + kPiece : total;
    if (wide) {
      for (std::int64_t i = first + 16 * threadIdx.x; i < last; i += 16 * blockDim.x)
        *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i % bytes);
    } else {
      for (std::int64_t i = first + threadIdx.x; i < last; i += blockDim.x) to[i] = from[i % bytes];
    }
    const std::uint64_t due = begin + static_cast<std::uint64_t>(static_cast<double>(hold) * static_cast<double>(last) /
                                                                 static_cast<double>(total));
    while (nanoseconds() < due) __nanosleep(200);
    __syncthreads();
  }
  while (nanoseconds() < begin + hold) __nanosleep(200);
}

}  // namespace

int sum(const CudaRuntime::Sum& w, void* stream) {
  auto* const s = static_cast<cudaStream_t>(stream);
  const bool in32 = w.in_dtype == Dtype::kFloat32, out32 = w.out_dtype == Dtype::kFloat32;
  if (in32 && out32) return launch_sum<float, float>(w, s);
  if (in32) return launch_sum<float, __nv_bfloat16>(w, s);
  if (out32) return launch_sum<__nv_bfloat16, float>(w, s);
  return launch_sum<__nv_bfloat16, __nv_bfloat16>(w, s);
}

int paced_copy(const CudaRuntime::PacedCopy& w, void* stream) {
  paced_copy_kernel<<<static_cast<unsigned>(w.blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<std::byte*>(w.to), static_cast<const std::byte*>(w.from), w.bytes, w.copies,
      static_cast<std::uint64_t>(w.hold));
  return cudaGetLastError();
}

}  // namespace fsdp::cuda_kernels
