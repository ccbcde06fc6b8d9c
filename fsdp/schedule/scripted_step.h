// ScriptedStep: drives a Scheduler through whole steps without a model: the four inputs in the order a model would give
// them, with costs instead of arithmetic. Tests, benches and `plan` use it; the virtual clock makes its times exact.
#pragma once
#include <functional>
#include <vector>

#include "fsdp/core/memory_meter.h"
#include "fsdp/device/virtual/virtual_device.h"
#include "fsdp/plan/module_tree.h"
#include "fsdp/plan/unit_plan.h"
#include "fsdp/schedule/scheduler.h"
#include "fsdp/schedule/unit_memory.h"

namespace fsdp {

// Bytes of one unit on one rank (padded), by what they are.
struct UnitBytes {
  Bytes parameters = 0;    // master shard (no_shard: whole)
  Bytes unsharded = 0;     // full parameters, compute dtype; 0 if the unit never gathers
  Bytes gathered = 0;      // what is gathered, until it is copied to the full parameters; 0: they are the same
  Bytes group_shard = 0;   // this rank's part of the copy kept over a smaller group between forward and backward
  Bytes reduce = 0;        // reduce input, reduce dtype; 0 if alone or all-reduced in place
  Bytes reduce_again = 0;  // the same for a reduction that adds to an earlier one of the step
  Bytes gradient = 0;      // reduced gradient, master dtype
  Bytes group_sum = 0;     // hybrid: the same as a group has summed it, in a reduce dtype other than the master's
  Bytes accumulated = 0;   // full gradient of micro-batches that are not reduced
  Bytes optimizer = 0;
  Count padding = 0;  // elements
  Count count = 0;    // elements of a rank's shard
  int group = 0;      // hybrid: ranks that share it; 0: all
  Dtype param_dtype = Dtype::kFloat32, reduce_dtype = Dtype::kFloat32;
};

// A UnitMemory that counts and does nothing else. The calls it hands out have null pointers.
class CountingUnitMemory final : public UnitMemory {
 public:
  CountingUnitMemory(std::vector<UnitBytes> units, std::vector<bool> all_reduces, MemoryMeter& meter)
      : units_(std::move(units)), all_reduces_(std::move(all_reduces)), meter_(meter) {}
  void acquire_unsharded(UnitId u) override;
  void release_unsharded(UnitId u) override;
  void copy_out(UnitId u) override;
  void keep_group_shard(UnitId u) override;
  void drop_group_shard(UnitId u) override;
  void acquire_reduce_input(UnitId u) override;
  void pack_gradients(UnitId u) override { drop_accumulated(u); }
  void accumulate_unsharded(UnitId u) override;
  void release_reduce_input(UnitId u) override;
  void acquire_gradient(UnitId u) override;
  void release_gradient(UnitId u) override;
  void acquire_group_sum(UnitId u) override;
  void release_group_sum(UnitId u) override;
  CollectiveCall all_gather_call(UnitId u) override;
  CollectiveCall reduce_call(UnitId u) override;
  CollectiveCall replica_call(UnitId u) override;

 private:
  const UnitBytes& at(UnitId u) const { return units_[static_cast<std::size_t>(u)]; }
  struct Held {  // what the unit has at the moment
    bool accumulated = false, gathered = false, unsharded = false, group_shard = false, gradient = false;
    Bytes reduce = 0;
  };
  Held& held(UnitId u);
  void drop_accumulated(UnitId u);
  std::vector<Held> held_;
  std::vector<UnitBytes> units_;
  std::vector<bool> all_reduces_;
  MemoryMeter& meter_;
};

struct ScriptEvent {
  // pre-forward, post-forward; begin and end of a region that backward computes again (activation checkpointing)
  enum class Kind : std::uint8_t { kEnter, kLeave, kRegionBegin, kRegionEnd } kind;
  UnitId unit = kNoUnit;
};
using Script = std::vector<ScriptEvent>;

// The forward of a model: units entered at their first module, left after their last one, in pre-order. `checkpoint`:
// each block is a region; units that start or end with it stay outside.
Script make_script(const ModuleTree& tree, const UnitPlan& plan, bool checkpoint = false);
// n units one after the other, all alike; with_root wraps them into unit 0.
Script sequence_script(int units, bool with_root = false);

// Micro-batches of one optimizer step; reduced every time, or only the last one.
struct MicroBatches {
  int count = 1;
  bool sync_every = false;
  GradientSync sync(int index) const {
    return index + 1 == count ? GradientSync::kFull : sync_every ? GradientSync::kReduce : GradientSync::kNone;
  }
};

// One whole step: forward by the script, backward by its mirror image, optimizer. compute(pass, unit) is called when a
// unit's work begins (once per enter) and is where a virtual device is charged; may be empty.
using ScriptedCompute = std::function<void(Pass, UnitId)>;
void run_scripted_step(Scheduler& scheduler, Device& device, int step, const Script& script,
                       const ScriptedCompute& compute, const MicroBatches& micro_batches = {});

// What `plan` says of memory: peaks by category of the second scripted step, activations apart. To the byte what the
// runtime counts, because the same scheduler makes the same requests in the same order.
struct MemoryPrediction {
  BytesByCategory category_peaks{};
  Bytes resident = 0;  // parameters and optimizer state
  MemoryPeak peak;     // of everything but activations
};
MemoryPrediction predict_memory(const std::vector<UnitTraits>& traits, const std::vector<UnitBytes>& bytes,
                                const Script& script, const SchedulerOptions& options, int world,
                                const MicroBatches& micro_batches = {});

// The unit's bytes and what the scheduler must know of it, from plan and tree. `optimizer_state_per_element`: adamw 8,
// sgd 0.
UnitBytes unit_bytes(const UnitSpec& unit, const ModuleTree& tree, int world, Bytes optimizer_state_per_element);
UnitTraits unit_traits(const UnitSpec& unit, const UnitBytes& bytes, int world);

}  // namespace fsdp
