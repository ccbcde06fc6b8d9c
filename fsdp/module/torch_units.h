// TorchUnits: the UnitMemory of the torch room. One flat buffer per unit, its shard, its gradients on their way.
// Private to the room.
#pragma once
#include <string>
#include <vector>

#include "fsdp/module/fully_shard.h"
#include "fsdp/schedule/unit_memory.h"

namespace fsdp {

class TorchUnits final : public UnitMemory {
 public:
  TorchUnits(Module& root, const UnitPlan& plan, const ShardedModelOptions& options, Collectives& collectives);

  struct Unit {
    UnitSpec spec;
    ShardLayout layout;
    bool all_reduces = false;  // the whole unit on every rank, gradients all-reduced
    std::vector<std::shared_ptr<Parameter>> parameters;
    at::Tensor shard;  // this rank's part; of a unit that is whole on every rank, the full buffer
    at::Tensor full;   // flat full parameters; memory comes and goes if the unit gathers
    Tensors views;     // of `full`, one for each parameter; each with a version counter of its own
    at::Tensor reduce_input, gradient;
    Tensors pending;  // what autograd handed over, until packed
    bool gathers() const { return layout.world > 1; }
  };
  Unit& at(UnitId u) { return units_[static_cast<std::size_t>(u)]; }
  const Unit& at(UnitId u) const { return units_[static_cast<std::size_t>(u)]; }
  UnitId count() const { return static_cast<UnitId>(units_.size()); }
  std::vector<UnitTraits> traits(const ModuleTree& tree) const;
  bool counts_in_norm(UnitId u) const { return at(u).gathers() || collectives_.rank() == 0; }

  void acquire_unsharded(UnitId u) override;
  void release_unsharded(UnitId u) override;
  void acquire_reduce_input(UnitId u) override;
  void pack_gradients(UnitId u) override;
  void release_reduce_input(UnitId u) override;
  void acquire_gradient(UnitId u) override;
  void release_gradient(UnitId u) override;
  CollectiveCall all_gather_call(UnitId u) override;
  CollectiveCall reduce_call(UnitId u) override;

 private:
  void build(Unit& unit, const UnitSpec& spec, const std::vector<std::shared_ptr<Parameter>>& parameters);
  void fill_shard(Unit& unit) const;
  void clear(const at::Tensor& flat, Count begin, Count end) const;

  ShardedModelOptions options_;
  Collectives& collectives_;
  std::vector<Unit> units_;
};

}  // namespace fsdp
