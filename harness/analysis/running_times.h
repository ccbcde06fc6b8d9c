// How long which kinds of operations ran together on one device.
#pragma once
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

// Length of time by what ran: the index is a set of Running bits.
enum Running : unsigned {
  kRunsCompute = 1,
  kRunsOptimizer = 2,
  kRunsCommunication = 4,
  kRunsMemcpy = 8,
  kRunsMemset = 16,
  kRunsCopyKernel = 32,          // a kernel that annotations make a copy of FSDP's
  kRunsOtherCommunication = 64,  // kernels of other libraries than NCCL and its kin
  kRunsCopyEngine = 128,         // copies that are a collective
};
struct RunningTimes {
  std::vector<fsdp::Nanos> by_set;  // empty: nothing was added
  void add(unsigned set, fsdp::Nanos ns) {
    if (by_set.empty()) by_set.resize(256);
    by_set[set] += ns;
  }
  // Time in which something of `any` runs and nothing of `none`.
  fsdp::Nanos length(unsigned any, unsigned none = 0) const;
  fsdp::Nanos both(unsigned a, unsigned b) const;  // something of a and something of b
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
inline constexpr unsigned kRunsAnyCommunication = kRunsCommunication | kRunsOtherCommunication | kRunsCopyEngine;

}  // namespace harness
