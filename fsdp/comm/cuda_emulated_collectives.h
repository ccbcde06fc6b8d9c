// CudaEmulatedCollectives: one GPU stands for all ranks of a job, without a network. Every other rank is taken to hold
// what this one holds, and each call is a kernel that occupies a set number of thread blocks for as long as the call
// would take on the modelled network: it contends for multiprocessors and memory as NCCL's kernels do, and holds its
// lane. Calls of one communicator run in issue order. Numbers are those of W equal ranks; rows are marked emulated.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/wire.h"
#include "fsdp/device/cuda/cuda_buffers.h"
#include "fsdp/device/cuda/cuda_device.h"
#include "fsdp/device/cuda/lane_memory.h"

namespace fsdp {

class CudaEmulatedCollectives final : public Collectives {
 public:
  struct Options {
    int world = 1;
    Wire wire;
    int blocks = 8;  // thread blocks of a call: NCCL's channels
  };
  // `device` outlives this.
  CudaEmulatedCollectives(CudaDevice& device, const Options& options);
  ~CudaEmulatedCollectives() override;

  int rank() const override { return 0; }
  int world() const override { return options_.world; }
  void enqueue(Lane lane, const CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override;
  void* allocate(Bytes n) override { return n > 0 ? compute_memory_.allocate(n) : nullptr; }
  void release(void* p) noexcept override;
  void* take(Bytes n, Lane writer) { return full_->take(n, writer); }
  void give(void* p) noexcept { full_->give(p); }

 private:
  void run(const CollectiveCall& call, int ranks, CudaRuntime::Stream stream);

  CudaDevice& device_;
  const Options options_;
  LaneMemory compute_memory_, gather_memory_;
  std::unique_ptr<CudaBuffers> full_;
  std::vector<std::pair<Communicator, Event>> last_;  // call of each communicator
};

}  // namespace fsdp
