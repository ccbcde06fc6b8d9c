// Scheduler: four inputs per unit -> ordered verbs on Device, Collectives and UnitMemory. Overlap is decided here and
// nowhere else. Sees units, lanes, events and bytes; no tensor, no clock.
//
// Life of a step:
//   begin_step        the all-gather lane waits for the optimizer event of the step before
//   pre_forward(i)    gather i unless ready; issue prefetches as far as the gate allows; compute waits for AG(i) only
//   post_forward(i)   give the full parameters back, by the unit's rule, behind the compute's event
//   pre_backward(i)   as pre_forward, with the backward order and mode (none, post, pre:k)
//   post_backward(i)  give parameters back; [post: prefetch]; take a reduce slot; pack; reduce on its lane. A unit used
//                     several times in a forward is reduced once, after its last backward; those before it accumulate
//   end_backward      units that never came are reduced as zeros, unused prefetches are freed, all reduces waited for
//   begin_optimizer / end_optimizer   around the update; the optimizer event is recorded, gradients are released
//
// Orders of both passes are recorded in the first step; from the second on prefetch follows the record. When the order
// changes the rest of that pass gathers on demand, the order is recorded anew, and a warning says so.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/core/memory_meter.h"
#include "fsdp/device/device.h"
#include "fsdp/schedule/unit_memory.h"
#include "fsdp/schedule/verb_log.h"

namespace fsdp {

enum class BackwardPrefetch : std::uint8_t { kNone, kPost, kPre };

// What becomes of the gradients of a micro-batch.
enum class GradientSync : std::uint8_t {
  kNone,    // accumulated unsharded, nothing is sent
  kReduce,  // reduced into the shard; hybrid units put their all-reduce off
  kFull,    // the last micro-batch of the step
};

// How many unsharded units may be in flight at once (kept units, such as the root, do not count).
struct GateLimit {
  enum class Kind : std::uint8_t { kNone, kUnits, kBytes } kind = Kind::kUnits;
  std::int64_t value = 2;
};

struct SchedulerOptions {
  int forward_prefetch = 1;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  int backward_depth = 1;
  GateLimit max_inflight;  // `auto` is resolved by auto_gate()
  int reduce_scatter_slots = 2;
  bool own_reduce_scatter_communicator = false;
  std::vector<UnitId> forward_order, backward_order;  // explicit prefetch order; empty: recorded
  // A gather on demand starts behind the compute issued so far: overlap comes from prefetch alone and does not depend
  // on how far the host runs ahead. false: the implicit overlap of a host that runs ahead.
  bool demand_waits_for_compute = true;
};
GateLimit auto_gate(int forward_prefetch, BackwardPrefetch mode, int backward_depth);

// What the scheduler knows of a unit.
struct UnitTraits {
  std::string name;
  bool gathers = true;                // false: no_shard, or alone in its group: always ready
  bool reshard_after_forward = true;  // false: kept until its post-backward
  bool reshard_after_backward = true;
  // false: stays gathered between micro-batches that are not reduced, as FSDP1 does under SHARD_GRAD_OP
  bool frees_without_sync = true;
  bool all_reduces = false;        // no_shard: the gradients are all-reduced
  bool packs = true;               // false: reduced in place, a slot counts and holds nothing
  bool reduces = true;             // false: nothing trainable, or alone in its group without need for a collective
  bool replicates = false;         // hybrid: the sharded gradient is all-reduced across shard groups
  bool keeps_group_sum = false;    // hybrid: a group's sum is of another type than the sharded gradient
  bool casts = false;              // the shard is cast before it is gathered
  bool sends = true;               // false: gathering is the cast alone, nobody shares the unit
  bool copies_out = false;         // per-parameter layout: a copy follows the gather
  bool trains = true;              // false: frozen as a whole, nothing to reduce
  bool keeps_group_shard = false;  // reshard_after_forward by a group size
  Bytes unsharded_bytes = 0;
  Bytes reduce_bytes = 0;  // what a reduction carries; 0: the same
};

struct SchedulerStats {
  std::int64_t all_gathers = 0, reduce_scatters = 0, all_reduces = 0;
  std::int64_t prefetch_hits = 0;    // the unit's turn came and its gather had been issued ahead
  std::int64_t prefetch_misses = 0;  // a recorded order was there and the gather was issued on demand all the same
  std::int64_t prefetch_unused = 0;  // gathered ahead and freed at the end of the pass without use
  std::int64_t order_changes = 0;
};

class Scheduler {
 public:
  // The references must outlive the scheduler. `meter` may be null; it gets the context for causes.
  Scheduler(std::vector<UnitTraits> units, const SchedulerOptions& options, Device& device, Collectives& collectives,
            UnitMemory& memory, MemoryMeter* meter);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void begin_step();
  // For the micro-batches that follow, within the step; begin_step sets kFull.
  void set_gradient_sync(GradientSync sync);
  void pre_forward(UnitId unit);
  void post_forward(UnitId unit);
  // Backward is under way, though no unit's own has begun: what it computes again comes before. Once is enough.
  void begin_backward();
  void pre_backward(UnitId unit);
  void post_backward(UnitId unit);
  void end_backward();  // of one micro-batch
  void begin_optimizer();
  void end_optimizer();

  void set_log(VerbLog* log);  // null: off
  const SchedulerStats& stats() const;
  // Sentences for the user since the last call.
  std::vector<std::string> take_warnings();
  // Rolling hash of (kind, unit, bytes, dtype) of this step's collectives: ranks compare it.
  std::uint64_t step_hash() const;
  // The last collective issued, for messages about hangs: "all_gather of model.layers.3, backward".
  std::string last_collective() const;

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace fsdp
