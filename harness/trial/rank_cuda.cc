// The CUDA world's backend: opens the module that has it.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "fsdp/core/errors.h"
#include "fsdp/module/cuda_world.h"
#include "fsdp/plan/shard_layout.h"
#include "fsdp/schedule/communicators.h"
#include "harness/trial/rank_backend.h"
#include "harness/trial/rank_transports.h"

namespace harness {
namespace {

constexpr double kNearShare = 0.95;

// Beside this program. It stays open until the process ends: what it registers with LibTorch cannot be taken back.
std::unique_ptr<fsdp::CudaModule> open_module() {
  std::error_code none;
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / fsdp::kCudaModuleFile;
  void* const library = dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw fsdp::EnvironmentError(std::string("[device] the CUDA module cannot be opened: ") + dlerror() +
                                 "; it lies beside shardscope-rank and needs a LibTorch with CUDA");
  }
  auto* const entry = reinterpret_cast<fsdp::CudaModuleEntry>(dlsym(library, fsdp::kCudaModuleEntry));
  if (entry == nullptr)
    throw fsdp::EnvironmentError("[device] " + beside.string() + " is no CUDA module of shardscope; build it again");
  return std::unique_ptr<fsdp::CudaModule>(entry());
}

fsdp::CudaWorldOptions options_of(const RankJob& job, const fsdp::UnitPlan& plan, fsdp::RangeSink* ranges) {
  const CaseSettings& c = job.settings;
  fsdp::CudaWorldOptions o;
  o.rank = job.rank, o.world = job.world;
  o.launched = job.local_rank >= 0;
  o.local_rank = o.launched ? job.local_rank : job.rank;
  o.communicators = fsdp::communicators_of(fsdp::groups_of(plan, job.world), own_reduce_scatter(c));
  o.min_ctas = c.nccl_ctas.min, o.max_ctas = c.nccl_ctas.max;
  o.registered_buffers = c.nccl_buffers == NcclBuffers::kRegistered;
  o.timeout = c.step_timeout;
  o.ranges = ranges;
  o.budget = c.memory_budget;
  o.wire = c.wire;
  return o;
}

class CudaBackend final : public RankBackend {
 public:
  CudaBackend(const RankJob& job, const fsdp::UnitPlan& plan, fsdp::RangeSink* ranges, RankSurroundings around)
      : module_(open_module()), emulated_(job.settings.wire.has_value()) {
    if (!emulated_) maker_ = std::make_unique<TransportMaker>(job, job.settings.step_timeout + kDeviceSlack, around);
    world_ = module_->open(options_of(job, plan, ranges), emulated_ ? nullptr : maker_->make("control", {}));
  }
  fsdp::Device& device() override { return world_->device(); }
  fsdp::Collectives& collectives() override { return world_->collectives(); }
  fsdp::TensorDevice* tensors() override { return &world_->tensors(); }
  bool meters_budget() const override { return false; }
  void complete(RankResult& result) override {
    const fsdp::CudaMemory memory = world_->memory();
    result.peak.total = memory.peak;
    result.environment.merge(world_->environment());
    result.environment.insert(memory.environment.begin(), memory.environment.end());
    result.environment["collectives"] = emulated_ ? "emulated" : "nccl";
    if (static_cast<double>(memory.peak) >= kNearShare * static_cast<double>(memory.capacity) ||
        memory.environment.at("cuda_alloc_retries") != "0")
      result.warnings.push_back("the GPU's memory is nearly full: " + memory.figures);
  }
  std::string memory_figures() override { return world_->memory().figures; }
  void cancel() noexcept override { world_->cancel(); }
  void abort(const std::string& reason) noexcept override { world_->abort(reason); }

 private:
  const std::unique_ptr<fsdp::CudaModule> module_;
  const bool emulated_;
  std::unique_ptr<TransportMaker> maker_;
  std::unique_ptr<fsdp::CudaWorld> world_;
};

}  // namespace

std::unique_ptr<RankBackend> make_cuda_backend(const RankJob& job, const fsdp::UnitPlan& plan, fsdp::RangeSink* ranges,
                                               RankSurroundings around) {
  return std::make_unique<CudaBackend>(job, plan, ranges, around);
}

}  // namespace harness
