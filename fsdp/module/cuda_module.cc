// libshardscope_cuda.so: puts the CUDA device, NCCL and LibTorch's CUDA part together behind cuda_world.h.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <utility>

#include "fsdp/comm/cuda_emulated_collectives.h"
#include "fsdp/comm/linked_nccl.h"
#include "fsdp/comm/nccl_collectives.h"
#include "fsdp/core/errors.h"
#include "fsdp/core/sizes.h"
#include "fsdp/device/cuda/linked_runtime.h"
#include "fsdp/module/cuda_world.h"

namespace fsdp {
namespace {

int gpu_of(const CudaWorldOptions& o) {
  if (const std::string why = why_no_gpu(); !why.empty()) throw EnvironmentError("[device] " + why);
  const int gpus = gpu_count();
  const int gpu = o.launched && gpus == 1 ? 0 : o.local_rank;
  if (gpu >= gpus) {
    throw EnvironmentError("[device] rank " + std::to_string(o.rank) + " is the " + std::to_string(gpu + 1) +
                           ". of this machine, which has " + std::to_string(gpus) +
                           " GPUs; use a smaller world, or --wire to let one GPU stand for many");
  }
  return gpu;
}

class World final : public CudaWorld, private TensorDevice {
 public:
  World(const CudaWorldOptions& o, std::unique_ptr<Transport> control)
      : gpu_(gpu_of(o)),
        budget_(o.budget),
        guard_(static_cast<c10::DeviceIndex>(gpu_)),
        runtime_(make_linked_runtime(gpu_)),
        device_(*runtime_,
                {.rank = o.rank, .timeout = o.timeout, .compute = current_stream(gpu_), .ranges = o.ranges}) {
    if (o.budget >= 0) limit_memory(gpu_, o.budget);
    reset_allocator_peaks(gpu_);
    if (o.wire) {
      emulated_ = std::make_unique<CudaEmulatedCollectives>(
          device_, CudaEmulatedCollectives::Options{
                       .world = o.world, .wire = *o.wire, .blocks = o.max_ctas > 0 ? o.max_ctas : kEmulatedBlocks});
      return;
    }
    nccl_ = make_linked_nccl();
    collectives_ = std::make_unique<NcclCollectives>(device_, *nccl_, std::move(control),
                                                     NcclOptions{.communicators = o.communicators,
                                                                 .min_ctas = o.min_ctas,
                                                                 .max_ctas = o.max_ctas,
                                                                 .registered_buffers = o.registered_buffers,
                                                                 .timeout = o.timeout});
  }

  Device& device() override { return device_; }
  Collectives& collectives() override {
    if (emulated_) return *emulated_;
    return *collectives_;
  }
  TensorDevice& tensors() override { return *this; }

  CudaMemory memory() override {
    const AllocatorFigures f = allocator_figures(gpu_);
    CudaMemory m;
    m.peak = f.allocated_peak;
    m.capacity = budget_ >= 0 ? std::min(budget_, f.total) : f.total;
    m.environment = {{"cuda_reserved_peak_bytes", std::to_string(f.reserved_peak)},
                     {"cuda_reserved_bytes", std::to_string(f.reserved)},
                     {"cuda_fragmented_bytes", std::to_string(f.split)},
                     {"cuda_alloc_retries", std::to_string(f.retries)},
                     {"cuda_ooms", std::to_string(f.ooms)}};
    m.figures = "allocated " + readable_bytes(f.allocated) + ", reserved " + readable_bytes(f.reserved) + " (" +
                readable_bytes(f.split) + " of it in fragments) of " + readable_bytes(m.capacity) + ", " +
                std::to_string(f.retries) + " retries";
    return m;
  }
  std::map<std::string, std::string> environment() override {
    auto e = describe_gpu(gpu_);
    if (nccl_) e["nccl"] = check_nccl_version(*nccl_);
    return e;
  }
  void cancel() noexcept override {
    const bool orderly = !device_.poisoned() && device_.idle();
    if (collectives_ && !orderly) collectives_->cancel();
    if (emulated_) device_.quiesce();
  }
  void abort(const std::string& reason) noexcept override {
    if (collectives_) collectives_->abort(reason);
  }

 private:
  static constexpr int kEmulatedBlocks = 16;  // about what NCCL takes on one node

  c10::Device place() const override { return {c10::kCUDA, static_cast<c10::DeviceIndex>(gpu_)}; }
  c10::Stream stream(Lane lane) const override {
    return c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(device_.stream(lane)),
                                            static_cast<c10::DeviceIndex>(gpu_))
        .unwrap();
  }
  struct Block {
    World* world;
    void* memory;
    static void give(void* self) {
      const std::unique_ptr<Block> b(static_cast<Block*>(self));
      if (b->world->emulated_)
        b->world->emulated_->give(b->memory);
      else
        b->world->collectives_->give(b->memory);
    }
  };
  c10::DataPtr take(Bytes n, Lane writer) override {
    void* const p = emulated_ ? emulated_->take(n, writer) : collectives_->take(n, writer);
    return {p, new Block{this, p}, &Block::give, place()};
  }

  const int gpu_;
  const Bytes budget_;
  c10::cuda::CUDAGuard guard_;
  std::unique_ptr<CudaRuntime> runtime_;
  CudaDevice device_;
  std::unique_ptr<NcclLibrary> nccl_;
  std::unique_ptr<NcclCollectives> collectives_;
  std::unique_ptr<CudaEmulatedCollectives> emulated_;
};

class Module final : public CudaModule {
 public:
  std::unique_ptr<CudaWorld> open(const CudaWorldOptions& options, std::unique_ptr<Transport> control) override {
    return std::make_unique<World>(options, std::move(control));
  }
};

}  // namespace
}  // namespace fsdp

extern "C" __attribute__((visibility("default"))) fsdp::CudaModule* shardscope_cuda_module() {
  return new fsdp::Module;
}
