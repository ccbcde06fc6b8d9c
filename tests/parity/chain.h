// What no family has: units that run in an order of their own, one of them twice or not at all. Trained as by
// harness::Trainer.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "harness/workload/trainer.h"

namespace harness {

// Linear blocks "layers.0", ... of settings.model (mlp: layers, dim, classes, frozen), each followed by gelu(8 x), and
// a head.
class ChainTrainer {
 public:
  // `order`: the blocks of a micro-batch's forward. As Trainer's constructor.
  ChainTrainer(const TrainerSettings& settings, const std::vector<int>& order, const fsdp::UnitPlan& plan,
               fsdp::Device& device, fsdp::Collectives& collectives, fsdp::MemoryMeter& meter);
  ~ChainTrainer();
  StepResult step();
  void save(const std::string& directory);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

fsdp::ModuleTree describe_chain(const ModelSettings& m);

}  // namespace harness
