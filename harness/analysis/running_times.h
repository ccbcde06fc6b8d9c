// How long which kinds of operations ran together on one device.
#pragma once
#include <array>

#include "fsdp/core/types.h"

namespace harness {

// Length of time by what ran: the index is a set of Running bits.
enum Running : unsigned {
  kRunsCompute = 1,
  kRunsOptimizer = 2,
  kRunsCommunication = 4,
  kRunsMemcpy = 8,
  kRunsMemset = 16,
  kRunsCopyKernel = 32,  // a kernel that annotations make a copy of FSDP's
};
struct RunningTimes {
  std::array<fsdp::Nanos, 64> by_set{};
  // Time in which something of `any` runs and nothing of `none`.
  fsdp::Nanos length(unsigned any, unsigned none = 0) const;
  fsdp::Nanos both(unsigned a, unsigned b) const;  // something of a and something of b
  void add(const RunningTimes& other);
};
// By row, not by union, as Nsight Systems' recipe nccl_gpu_overlap_trace counts: of each kernel the time beside other
// communication kernels and beside other compute kernels, summed, of the sum of the kernels' times.
struct RowOverlap {
  fsdp::Nanos communication = 0, compute = 0;  // sums of the kernels' times
  fsdp::Nanos communication_communication = 0, communication_compute = 0;
  fsdp::Nanos compute_communication = 0, compute_compute = 0;
};

inline constexpr unsigned kRunsModel = kRunsCompute | kRunsOptimizer;
inline constexpr unsigned kRunsKernels = kRunsModel | kRunsCopyKernel;

}  // namespace harness
