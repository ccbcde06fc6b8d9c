// The CUDA world as the rank program sees it: an interface to a module, libshardscope_cuda.so, that is loaded only when
// a case asks for device cuda. Everything that is linked to CUDA, NCCL and LibTorch's CUDA part is behind it.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/transport.h"
#include "fsdp/comm/wire.h"
#include "fsdp/device/device.h"
#include "fsdp/device/ranges.h"
#include "fsdp/module/tensor_device.h"

namespace fsdp {

struct CudaWorldOptions {
  int rank = 0, world = 1;
  int local_rank = 0;                       // which GPU of this machine
  bool launched = false;                    // by a launcher, which may show each rank its own GPU alone
  std::vector<Communicator> communicators;  // besides that of all ranks
  int min_ctas = 0, max_ctas = 0;
  bool registered_buffers = false;
  Nanos timeout = 0;
  RangeSink* ranges = nullptr;  // outlives the world
  Bytes budget = -1;            // of the GPU's memory; negative: all of it
  // This process alone stands for all ranks, and calls take as long as on this network; absent: NCCL.
  std::optional<Wire> wire;
};

// What the allocator says, for the record of a case.
struct CudaMemory {
  Bytes peak = 0;                                  // handed out at once
  Bytes capacity = 0;                              // of the GPU, or the budget
  std::map<std::string, std::string> environment;  // reserved, fragmentation, retries
  std::string figures;                             // the same in one clause, for an out-of-memory
};

class CudaWorld {
 public:
  virtual ~CudaWorld() = default;
  virtual Device& device() = 0;
  virtual Collectives& collectives() = 0;
  virtual TensorDevice& tensors() = 0;
  virtual CudaMemory memory() = 0;
  virtual std::map<std::string, std::string> environment() = 0;
  virtual void cancel() noexcept = 0;                          // before buffers go: lanes write nothing any more
  virtual void abort(const std::string& reason) noexcept = 0;  // thread-safe
};

class CudaModule {
 public:
  virtual ~CudaModule() = default;
  // `control`: a host transport of all ranks; null where the world is emulated. Throws EnvironmentError without a GPU.
  virtual std::unique_ptr<CudaWorld> open(const CudaWorldOptions& options, std::unique_ptr<Transport> control) = 0;
};

// What the module exports.
inline constexpr char kCudaModuleFile[] = "libshardscope_cuda.so", kCudaModuleEntry[] = "shardscope_cuda_module";
using CudaModuleEntry = CudaModule* (*)();  // the caller owns it

}  // namespace fsdp
