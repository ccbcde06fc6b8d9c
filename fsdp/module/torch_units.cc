#include "fsdp/module/torch_units.h"

#include <algorithm>
#include <cstring>

#include "fsdp/core/errors.h"
#include "fsdp/module/flat_storage.h"
#include "fsdp/module/kernels.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"
#include "fsdp/schedule/scripted_step.h"

namespace fsdp {
namespace {

constexpr Bytes kElement = 4;  // fp32

void check_supported(const UnitSpec& spec) {
  const UnitOptions& o = spec.options;
  if (o.strategy == Strategy::kHybridShard || o.strategy == Strategy::kHybridShardZero2)
    throw ConfigError("[fully_shard] unit " + spec.name + ": strategy " + std::string(name_of(o.strategy)) +
                      " is not there on this device; use full_shard, shard_grad_op or no_shard");
  if (o.reshard_group > 1)
    throw ConfigError("[fully_shard] unit " + spec.name +
                      ": reshard_after_forward with a group size is not there on this device; use true or false");
  if (o.param_dtype != Dtype::kFloat32 || o.reduce_dtype != Dtype::kFloat32)
    throw ConfigError("[fully_shard] unit " + spec.name + ": only fp32 on this device; set param_dtype and " +
                      "reduce_dtype to fp32");
}

}  // namespace

TorchUnits::TorchUnits(Module& root, const UnitPlan& plan, const ShardedModelOptions& options, Collectives& collectives)
    : options_(options), collectives_(collectives) {
  const auto parameters = parameters_of(root);
  units_.resize(plan.units.size());
  for (std::size_t u = 0; u < units_.size(); ++u) build(units_[u], plan.units[u], parameters);
}

void TorchUnits::build(Unit& unit, const UnitSpec& spec, const std::vector<std::shared_ptr<Parameter>>& parameters) {
  check_supported(spec);
  unit.spec = spec;
  std::vector<Count> numels;
  for (ParameterId p : spec.parameters) {
    unit.parameters.push_back(parameters.at(static_cast<std::size_t>(p)));
    numels.push_back(c10::multiply_integers(unit.parameters.back()->shape));
  }
  const bool whole = spec.options.strategy == Strategy::kNoShard;
  unit.layout = make_flat_layout(numels, whole ? 1 : collectives_.group_size(Communicator::kShard),
                                 align_elements_for(spec.options.param_dtype, spec.options.reduce_dtype));
  unit.all_reduces = whole && collectives_.world() > 1;
  unit.shard = shared_tensor(collectives_, options_.meta, unit.layout.shard, MemoryCategory::kParameters);
  if (!options_.meta) fill_shard(unit);
  unit.full = unit.shard;
  if (unit.gathers()) {
    unit.full = own_tensor(options_.meta, 0, MemoryCategory::kUnsharded);
    unit.full.unsafeGetTensorImpl()->set_sizes_contiguous({unit.layout.flat});
  }
  for (std::size_t i = 0; i < numels.size(); ++i) {
    at::Tensor view = unit.full.detach();
    view.unsafeGetTensorImpl()->set_storage_offset(unit.layout.offsets[i]);
    view.unsafeGetTensorImpl()->set_sizes_contiguous(unit.parameters[i]->shape);
    unit.views.push_back(std::move(view));
  }
}

void TorchUnits::fill_shard(Unit& unit) const {
  const int rank = unit.gathers() ? collectives_.rank() : 0;
  auto* const shard = unit.shard.mutable_data_ptr<float>();
  std::memset(shard, 0, static_cast<std::size_t>(unit.layout.shard * kElement));
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const Parameter& p = *unit.parameters[i];
    const ShardLayout::Range r = unit.layout.local(i, rank);
    if (p.init == InitRule::kUniform)
      kernels::uniform_weights(options_.seed, static_cast<std::uint64_t>(p.index), r.begin, r.end, shard + r.at);
    else if (p.init == InitRule::kOnes)
      std::fill_n(shard + r.at, r.end - r.begin, 1.0f);
  }
}

std::vector<UnitTraits> TorchUnits::traits(const ModuleTree& tree) const {
  std::vector<UnitTraits> out;
  for (const Unit& u : units_)
    out.push_back(unit_traits(u.spec, unit_bytes(u.spec, tree, collectives_.world(), 0), collectives_.world()));
  return out;
}

void TorchUnits::acquire_unsharded(UnitId u) {
  take_storage(at(u).full, at(u).layout.flat * kElement, MemoryCategory::kUnsharded);
}
void TorchUnits::release_unsharded(UnitId u) { free_storage(at(u).full); }

// Of an all-reduced unit the reduce input is the gradient: the sum replaces it in place.
void TorchUnits::acquire_reduce_input(UnitId u) {
  Unit& unit = at(u);
  if (unit.all_reduces)
    acquire_gradient(u);
  else
    unit.reduce_input = shared_tensor(collectives_, options_.meta, unit.layout.flat, MemoryCategory::kReduce);
}
void TorchUnits::release_reduce_input(UnitId u) { at(u).reduce_input.reset(); }

void TorchUnits::acquire_gradient(UnitId u) {
  Unit& unit = at(u);
  if (unit.gradient.defined()) return;
  unit.gradient = unit.all_reduces
                      ? shared_tensor(collectives_, options_.meta, unit.layout.flat, MemoryCategory::kGradients)
                      : own_tensor(options_.meta, unit.layout.shard, MemoryCategory::kGradients);
}
void TorchUnits::release_gradient(UnitId u) { at(u).gradient.reset(); }

void TorchUnits::clear(const at::Tensor& flat, Count begin, Count end) const {
  if (end > begin && !options_.meta)
    std::memset(flat.mutable_data_ptr<float>() + begin, 0, static_cast<std::size_t>((end - begin) * kElement));
}

void TorchUnits::pack_gradients(UnitId u) {
  Unit& unit = at(u);
  const at::Tensor& flat = unit.reduce_input.defined() ? unit.reduce_input : unit.gradient;
  Count filled = 0;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    if (i >= unit.pending.size() || !unit.pending[i].defined()) continue;
    clear(flat, filled, unit.layout.offsets[i]);
    ops::pack_(flat, unit.layout.offsets[i], unit.pending[i]);
    unit.pending[i].reset();
    filled = unit.layout.offsets[i] + unit.layout.numels[i];
  }
  clear(flat, filled, unit.layout.flat);
  unit.pending.clear();
}

CollectiveCall TorchUnits::all_gather_call(UnitId u) {
  const Unit& unit = at(u);
  CollectiveCall c;
  c.kind = CollectiveKind::kAllGather;
  c.unit = u;
  c.count = unit.layout.shard;
  if (options_.meta) return c;
  c.in = unit.shard.const_data_ptr();
  c.out = unit.full.mutable_data_ptr();
  return c;
}

CollectiveCall TorchUnits::reduce_call(UnitId u) {
  const Unit& unit = at(u);
  CollectiveCall c;
  c.unit = u;
  c.scale = 1.0f / static_cast<float>(collectives_.world());
  c.kind = unit.all_reduces ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter;
  c.communicator = unit.all_reduces ? Communicator::kWorld : Communicator::kShard;
  c.count = unit.layout.shard;
  if (options_.meta) return c;
  c.in = unit.all_reduces ? unit.gradient.const_data_ptr() : unit.reduce_input.const_data_ptr();
  c.out = unit.gradient.mutable_data_ptr();
  return c;
}

}  // namespace fsdp
