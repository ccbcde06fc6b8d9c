// Trainer: one rank's training of one model under one plan: model, sharding, data, optimizer, and the step. No torch in
// this header: the rank program and the tests drive it with plain values.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fsdp/comm/collectives.h"
#include "fsdp/core/memory_meter.h"
#include "fsdp/core/optimizer_kind.h"
#include "fsdp/device/device.h"
#include "fsdp/plan/unit_plan.h"
#include "fsdp/schedule/scheduler.h"
#include "harness/workload/model_settings.h"

namespace fsdp {
class Module;
class TensorDevice;
}  // namespace fsdp

namespace harness {

struct TrainerSettings {
  ModelSettings model;         // model.seq is the sequence length of the run
  std::int64_t batch = 1;      // samples per rank and micro-batch
  int accumulate = 1;          // micro-batches per step
  bool sync_every = false;     // gradients are reduced after each micro-batch, else after the last
  bool checkpoint = false;     // activations of each block are computed again in backward
  std::optional<double> clip;  // global gradient norm
  std::uint64_t seed = 0;
  fsdp::OptimizerKind optimizer = fsdp::OptimizerKind::kAdamW;
  double adamw_epsilon = 1e-8;            // PyTorch's default
  bool meta = false;                      // tensors without memory: the virtual world
  fsdp::TensorDevice* tensors = nullptr;  // where they live, if not in host memory; outlives the trainer
  // Norms and activations are made again in backward where that saves memory (fsdp/module/ops.h). GPUs keep them, as
  // PyTorch does there.
  bool remake = true;
  fsdp::SchedulerOptions scheduler;
  // Another model in place of build_model(model, meta), with named modules; `model` then says what a batch looks like.
  std::function<std::unique_ptr<fsdp::Module>()> make_model;
};

struct StepResult {
  double loss = 0.0;                 // mean over this rank's tokens of all micro-batches; 0 on meta
  double gradient_square_sum = 0.0;  // this rank's part of the squared global norm, before clipping; 0 on meta
};

class Trainer {
 public:
  // Builds everything on the calling thread, which is then the only one to call step(). `plan` was made from
  // describe_model(settings.model), or from what make_model makes. Device, collectives and meter must outlive this; the
  // meter counts every tensor. Throws ConfigError, OutOfMemory.
  Trainer(const TrainerSettings& settings, const fsdp::UnitPlan& plan, fsdp::Device& device,
          fsdp::Collectives& collectives, fsdp::MemoryMeter& meter);
  // After a step that threw, cancel the device's lanes first: they may still write into the buffers freed here.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Forward, loss and backward of each micro-batch, optimizer. Rank r's micro-batch k takes the samples from
  // (k * world + r) * batch on, the same ones in each step. Steps are numbered from 0, or from what set_step() said.
  StepResult step();
  void set_step(int next);  // number that the device is given for the next step

  // Parameters, optimizer state and number of updates, to and from a directory that all ranks see; see
  // fsdp/module/sharded_state.h. All ranks call them, between steps. The state may come from another world, plan and
  // layout of the same model.
  void save(const std::string& directory);
  void load(const std::string& directory);

  fsdp::Scheduler& scheduler();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// "2.11.0", "avx512": for the environment that a result carries.
std::string libtorch_version();
std::string kernel_instruction_set();

}  // namespace harness
