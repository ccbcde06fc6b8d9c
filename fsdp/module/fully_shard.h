// ShardedModel: a Module whose parameters are kept as the units of a plan say, driven by a Scheduler.
//
// Each unit is one flat buffer. A rank owns a shard of it (in memory that peers read directly where the transport has
// such) and fills it element by element from the counter-based rule: no rank ever holds the whole model. At the unit's
// first module the scheduler brings the full parameters and the module's parameters become views of them; a node in the
// autograd graph stands for that moment, and when backward reaches it, it hands the unit's gradients to the scheduler.
// A unit of bf16 parameters takes floating inputs over as bf16; outputs keep the type they have, unless the unit names
// one (output_dtype).
//
// The full buffer is freed and refilled by swapping its storage's data pointer, so what autograd saved stays valid.
//
// One thread: the rank's. After a failed step the device's lanes must be cancelled before this is destroyed, since they
// may still write into its buffers. The gradient of a unit exists from its post-backward to the end of the optimizer.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/core/memory_meter.h"
#include "fsdp/device/device.h"
#include "fsdp/module/module.h"
#include "fsdp/plan/shard_layout.h"
#include "fsdp/plan/unit_plan.h"
#include "fsdp/schedule/scheduler.h"

namespace fsdp {

struct ShardedModelOptions {
  bool meta = false;  // tensors without memory, for the virtual world
  std::uint64_t seed = 0;
  SchedulerOptions scheduler;
};

class ShardedModel {
 public:
  // `root` carries names (name_modules) and has no values yet; the plan was made from tree_of(root). All references
  // must outlive this; `meter` may be null and is then nobody's. Throws ConfigError for what the runtime does not do.
  ShardedModel(Module& root, const UnitPlan& plan, const ShardedModelOptions& options, Device& device,
               Collectives& collectives, MemoryMeter* meter);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  Scheduler& scheduler();

  // What an optimizer works on: flat fp32 tensors, this rank's part of the unit.
  struct Shard {
    at::Tensor parameters;
    at::Tensor gradients;  // undefined outside of backward .. end of optimizer
    bool counts = true;    // in the global gradient norm: false where another rank holds the same
    bool trains = true;    // false: frozen as a whole, there are never gradients
  };
  Shard shard(UnitId unit) const;
  // Where this rank's part of one parameter lies in both.
  struct ParameterShard {
    const Parameter* parameter = nullptr;
    ShardLayout::Range range;  // range.at: in Shard::parameters
    Count gradient_at = -1;    // in Shard::gradients; -1: has no place there
  };
  ParameterShard parameter_shard(UnitId unit, std::size_t parameter) const;
  std::size_t parameter_count(UnitId unit) const;
  Count gradient_count(UnitId unit) const;  // elements of Shard::gradients
  const ShardLayout& layout(UnitId unit) const;
  UnitId unit_count() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp
