// UnitMemory: what the scheduler may do to a unit's bytes. The torch room implements it with tensors, ScriptedStep and
// `plan` with counters. All calls come from the host thread, in the order that defines the schedule.
#pragma once
#include "fsdp/comm/collectives.h"
#include "fsdp/core/types.h"

namespace fsdp {

class UnitMemory {
 public:
  virtual ~UnitMemory() = default;

  // Memory for the unit's full parameters. Throws OutOfMemory.
  virtual void acquire_unsharded(UnitId unit) = 0;
  virtual void release_unsharded(UnitId unit) = 0;

  // Memory for the unit's reduce input (full gradients in the reduce dtype).
  virtual void acquire_reduce_input(UnitId unit) = 0;
  // Copies the gradients that autograd handed over into the reduce input, zeros where there is none and in the padding,
  // and drops them one by one.
  virtual void pack_gradients(UnitId unit) = 0;
  virtual void release_reduce_input(UnitId unit) = 0;

  // Memory for the reduced gradient, if there is none yet in this step.
  virtual void acquire_gradient(UnitId unit) = 0;
  virtual void release_gradient(UnitId unit) = 0;

  virtual CollectiveCall all_gather_call(UnitId unit) = 0;
  // reduce_scatter, or all_reduce for no_shard units.
  virtual CollectiveCall reduce_call(UnitId unit) = 0;
};

}  // namespace fsdp
