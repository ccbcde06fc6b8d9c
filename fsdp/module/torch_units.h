// TorchUnits: the UnitMemory of the torch room. One buffer of full parameters per unit, its shard, its gradients on
// their way. Private to the room.
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
    GradientLayout gradients;
    UnitTraits traits;
    Communicator communicator;  // of the ranks that share the unit
    int rank = 0;               // this rank's place among them
    int kept_over = 0;          // ranks of the smaller group that keeps a copy after forward
    std::vector<std::shared_ptr<Parameter>> parameters;
    std::vector<std::size_t> trainable;  // of them, in order: what autograd hands over
    at::Tensor shard;                    // this rank's part, fp32; of a unit that is whole on every rank, all of it
    at::Tensor full;                     // full parameters; memory comes and goes if the unit gathers
    Tensors views;                       // of `full`, one for each parameter; each with a version counter of its own
    at::Tensor gathered;                 // per-parameter layout: what was gathered, until it is copied out
    at::Tensor group_shard;              // this rank's part of the copy over the smaller group
    at::Tensor accumulated;              // full gradient of micro-batches that were not reduced, reduce dtype
    at::Tensor reduce_input, gradient;
    // Hybrid: what the group has summed, in the reduce type, until the groups' sums are the gradient.
    at::Tensor group_sum;
    bool has_sum = false;  // the gradient holds an earlier reduction of this step
    Tensors pending;       // what autograd handed over, until packed
  };
  Unit& at(UnitId u) { return units_[static_cast<std::size_t>(u)]; }
  const Unit& at(UnitId u) const { return units_[static_cast<std::size_t>(u)]; }
  UnitId count() const { return static_cast<UnitId>(units_.size()); }
  std::vector<UnitTraits> traits() const;
  // No other rank with a lower number holds the same.
  bool counts_in_norm(UnitId u) const { return collectives_.rank() < at(u).layout.world; }

  void acquire_unsharded(UnitId u) override;
  void release_unsharded(UnitId u) override;
  void cast_shard(UnitId u) override;
  void copy_out(UnitId u) override;
  void keep_group_shard(UnitId u) override;
  void drop_group_shard(UnitId u) override { at(u).group_shard.reset(); }
  void acquire_reduce_input(UnitId u) override;
  void pack_gradients(UnitId u) override;
  void accumulate_unsharded(UnitId u) override;
  void release_reduce_input(UnitId u) override;
  void acquire_gradient(UnitId u) override;
  void release_gradient(UnitId u) override;
  void acquire_group_sum(UnitId u) override;
  void release_group_sum(UnitId u) override { at(u).group_sum.reset(); }
  CollectiveCall all_gather_call(UnitId u) override;
  CollectiveCall reduce_call(UnitId u) override;
  CollectiveCall replica_call(UnitId u) override;

 private:
  void build(Unit& unit, const UnitSpec& spec, const ModuleTree& tree,
             const std::vector<std::shared_ptr<Parameter>>& parameters);
  void make_views(Unit& unit) const;
  void fill_shard(Unit& unit) const;
  void clear(const at::Tensor& flat, Count begin, Count end) const;
  void clear_gap(const Unit& unit, const at::Tensor& flat, std::size_t parameter, bool all) const;
  void pack(Unit& unit, const at::Tensor& flat, bool add) const;

  ShardedModelOptions options_;
  Collectives& collectives_;
  std::vector<Unit> units_;
};

}  // namespace fsdp
