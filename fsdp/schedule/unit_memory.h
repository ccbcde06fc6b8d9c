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

  // Units whose parameters travel in another dtype than the master shard's: casts this rank's shard into its place of
  // the full buffer (acquired before), from where it is gathered.
  virtual void cast_shard(UnitId) {}
  // A micro-batch whose gradients are not reduced: adds what autograd handed over to the unit's full gradient, which
  // lives until the micro-batch that is reduced packs it too.
  virtual void accumulate_unsharded(UnitId) {}
  // reshard_after_forward by a group size: keeps this rank's part of a copy sharded over the group, from which the next
  // gather takes it; called before release_unsharded of the forward. The part goes when the backward pass has no use
  // for it any more, or at the end of the micro-batch.
  virtual void keep_group_shard(UnitId) {}
  virtual void drop_group_shard(UnitId) {}
  // Per-parameter layout: what was gathered goes to the full parameters, which take their memory here; the gathered
  // buffer's goes. release_unsharded() may come without it, if the gather was not used.
  virtual void copy_out(UnitId) {}
  // Hybrid, where gradients travel in another type than the sharded gradient's: what the group has summed, in the type
  // that travels, from the unit's last reduction of the step until its all-reduce across groups is over.
  virtual void acquire_group_sum(UnitId) {}
  virtual void release_group_sum(UnitId) {}
  // Hybrid: the all-reduce of the sharded gradient, or of the group's sum into it, across shard groups.
  virtual CollectiveCall replica_call(UnitId) { return {}; }

  virtual CollectiveCall all_gather_call(UnitId unit) = 0;
  // reduce_scatter, or all_reduce for no_shard units.
  virtual CollectiveCall reduce_call(UnitId unit) = 0;
};

}  // namespace fsdp
