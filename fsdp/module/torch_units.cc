#include "fsdp/module/torch_units.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fsdp/core/errors.h"
#include "fsdp/module/flat_storage.h"
#include "fsdp/module/kernels.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/tensor_device.h"
#include "fsdp/module/torch.h"
#include "fsdp/schedule/scripted_step.h"

namespace fsdp {
namespace {

void* element(const at::Tensor& t, Count at) {
  return static_cast<std::byte*>(t.mutable_data_ptr()) + at * static_cast<Count>(t.element_size());
}

}  // namespace

TorchUnits::TorchUnits(Module& root, const UnitPlan& plan, const ShardedModelOptions& options, Collectives& collectives)
    : options_(options), collectives_(collectives) {
  const auto parameters = parameters_of(root);
  const ModuleTree tree = tree_of(root);
  units_.resize(plan.units.size());
  for (std::size_t u = 0; u < units_.size(); ++u) build(units_[u], plan.units[u], tree, parameters);
}

void TorchUnits::build(Unit& unit, const UnitSpec& spec, const ModuleTree& tree,
                       const std::vector<std::shared_ptr<Parameter>>& parameters) {
  const int world = collectives_.world();
  unit.spec = spec;
  unit.layout = unit_layout(spec, tree, world);
  unit.gradients = gradient_layout(spec, tree, world);
  unit.traits = unit_traits(spec, unit_bytes(spec, tree, world, 0), world);
  unit.kept_over = reshard_ranks(spec, world);
  unit.rank = collectives_.rank() % unit.layout.world;
  if (unit.traits.replicates) unit.communicator.ranks = unit.layout.world;
  for (ParameterId p : spec.parameters) {
    unit.parameters.push_back(parameters.at(static_cast<std::size_t>(p)));
    if (unit.parameters.back()->trainable) unit.trainable.push_back(unit.parameters.size() - 1);
  }
  unit.shard = shared_tensor(collectives_, options_.meta, unit.layout.shard, MemoryCategory::kParameters);
  if (!options_.meta) fill_shard(unit);
  make_views(unit);
}

void TorchUnits::make_views(Unit& unit) const {
  unit.full = unit.shard;
  if (unit.traits.gathers) {
    unit.full = own_tensor(options_.meta, 0, MemoryCategory::kUnsharded, unit.spec.options.param_dtype);
    unit.full.unsafeGetTensorImpl()->set_sizes_contiguous({unit.layout.full});
  }
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    at::Tensor view = unit.full.detach();
    view.unsafeGetTensorImpl()->set_storage_offset(unit.layout.offsets[i]);
    view.unsafeGetTensorImpl()->set_sizes_contiguous(unit.parameters[i]->shape);
    unit.views.push_back(std::move(view));
  }
}

void TorchUnits::fill_shard(Unit& unit) const {
  const at::Tensor host = unit.shard.is_cpu() ? unit.shard : at::empty(unit.shard.sizes(), at::kFloat);
  auto* const shard = host.mutable_data_ptr<float>();
  std::fill_n(shard, unit.layout.shard, 0.0f);
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const Parameter& p = *unit.parameters[i];
    const ShardLayout::Range r = unit.layout.local(i, unit.rank);
    if (p.init == InitRule::kUniform)
      kernels::uniform_weights(options_.seed, static_cast<std::uint64_t>(p.index), r.begin, r.end, shard + r.at);
    else if (p.init == InitRule::kOnes)
      std::fill_n(shard + r.at, r.end - r.begin, 1.0f);
  }
  if (!unit.shard.is_cpu()) unit.shard.copy_(host);
}

std::vector<UnitTraits> TorchUnits::traits() const {
  std::vector<UnitTraits> out;
  for (const Unit& u : units_) out.push_back(u.traits);
  return out;
}

// ---- full parameters

void TorchUnits::acquire_unsharded(UnitId u) {
  Unit& unit = at(u);
  const Dtype dtype = unit.spec.options.param_dtype;
  if (unit.traits.copies_out)
    unit.gathered = own_tensor(options_.meta, unit.layout.flat, MemoryCategory::kUnsharded, dtype);
  else
    take_storage(unit.full, unit.layout.full * size_of(dtype), MemoryCategory::kUnsharded);
}
void TorchUnits::release_unsharded(UnitId u) {
  at(u).gathered.reset();
  free_storage(at(u).full);
}

void TorchUnits::cast_shard(UnitId u) {
  const LaneScope scope(Lane::kAllGather);
  const Unit& unit = at(u);
  const Count n = unit.layout.shard;
  ops::move_(unit.traits.copies_out ? unit.gathered : unit.full, unit.shard,
             {.to_at = unit.rank * n, .piece = n, .total = n});
}

// Sorted by rank (of the whole group or of the smaller one) -> sorted by parameter.
void TorchUnits::copy_out(UnitId u) {
  Unit& unit = at(u);
  const ShardLayout& l = unit.layout;
  take_storage(unit.full, l.full * size_of(unit.spec.options.param_dtype), MemoryCategory::kUnsharded, Lane::kCompute);
  const Count parts = unit.group_shard.defined() ? unit.kept_over : l.world;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const Count whole = l.world * l.pieces[i], piece = whole / parts;
    ops::move_(unit.full, unit.gathered,
               {.to_at = l.offsets[i],
                .to_stride = piece,
                .from_at = l.world * l.piece_offsets[i] / parts,
                .from_stride = l.flat / parts,
                .piece = piece,
                .total = whole});
  }
  unit.gathered.reset();
}

void TorchUnits::keep_group_shard(UnitId u) {
  Unit& unit = at(u);
  if (unit.group_shard.defined()) return;  // from an earlier use in this forward
  const ShardLayout& l = unit.layout;
  const Count mine = l.flat / unit.kept_over, place = collectives_.rank() % unit.kept_over;
  unit.group_shard =
      shared_tensor(collectives_, options_.meta, mine, MemoryCategory::kUnsharded, unit.spec.options.param_dtype);
  if (!l.per_parameter)
    return ops::move_(unit.group_shard, unit.full, {.from_at = place * mine, .piece = mine, .total = mine});
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const Count piece = l.world * l.pieces[i] / unit.kept_over;
    ops::move_(unit.group_shard, unit.full,
               {.to_at = l.world * l.piece_offsets[i] / unit.kept_over,
                .from_at = l.offsets[i] + place * piece,
                .piece = piece,
                .total = piece});
  }
}

// ---- gradients

// Of an all-reduced unit the reduce input is the gradient, where types allow: the sum replaces it in place. A second
// reduction of a step must not touch the first.
void TorchUnits::acquire_reduce_input(UnitId u) {
  Unit& unit = at(u);
  const bool in_place = unit.traits.all_reduces && unit.spec.options.reduce_dtype == Dtype::kFloat32 && !unit.has_sum;
  if (in_place)
    acquire_gradient(u);
  else
    unit.reduce_input = shared_tensor(collectives_, options_.meta, unit.gradients.layout.flat, MemoryCategory::kReduce,
                                      unit.spec.options.reduce_dtype);
}
void TorchUnits::release_reduce_input(UnitId u) { at(u).reduce_input.reset(); }

void TorchUnits::acquire_gradient(UnitId u) {
  Unit& unit = at(u);
  if (unit.gradient.defined()) return;
  const Count n = unit.gradients.layout.shard;
  unit.gradient = unit.traits.all_reduces || unit.traits.replicates
                      ? shared_tensor(collectives_, options_.meta, n, MemoryCategory::kGradients)
                      : own_tensor(options_.meta, n, MemoryCategory::kGradients);
}
void TorchUnits::release_gradient(UnitId u) {
  at(u).gradient.reset();
  at(u).has_sum = false;
}

void TorchUnits::acquire_group_sum(UnitId u) {
  Unit& unit = at(u);
  unit.group_sum = shared_tensor(collectives_, options_.meta, unit.gradients.layout.shard, MemoryCategory::kGradients,
                                 unit.spec.options.reduce_dtype);
}

void TorchUnits::clear(const at::Tensor& flat, Count begin, Count end) const {
  if (end <= begin) return;
  if (!flat.is_cpu()) {
    flat.narrow(0, begin, end - begin).zero_();
    return;
  }
  std::memset(element(flat, begin), 0, static_cast<std::size_t>(end - begin) * flat.element_size());
}

// Padding behind the parameter (and, of the first, in front); with `all` the parameter's own place too. On meta, where
// an operator is a cost, padding is none.
void TorchUnits::clear_gap(const Unit& unit, const at::Tensor& flat, std::size_t i, bool all) const {
  if (options_.meta && !all) return;
  const ShardLayout& l = unit.gradients.layout;
  if (l.copies()) {
    for (int r = 0; r < l.world; ++r) {
      const Count first = all ? 0 : std::clamp(l.numels[i] - r * l.pieces[i], Count{0}, l.pieces[i]);
      const Count place = r * l.shard + l.piece_offsets[i];
      clear(flat, place + first, place + l.pieces[i]);
    }
    return;
  }
  const Count begin = l.offsets[i], end = i + 1 < l.offsets.size() ? l.offsets[i + 1] : l.flat;
  clear(flat, all ? begin : begin + l.numels[i], end);
}

// Gradients come in the order of `trainable`; what has none is zero.
void TorchUnits::pack(Unit& unit, const at::Tensor& flat, bool add) const {
  const ShardLayout& l = unit.gradients.layout;
  std::size_t next = 0;
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    if (unit.gradients.index[p] < 0) continue;
    const auto i = static_cast<std::size_t>(unit.gradients.index[p]);
    const bool has_slot = next < unit.trainable.size() && unit.trainable[next] == p;
    at::Tensor gradient;
    if (has_slot && next < unit.pending.size()) gradient = std::move(unit.pending[next]);
    next += has_slot ? 1 : 0;
    if (!add) clear_gap(unit, flat, i, !gradient.defined());
    if (!gradient.defined()) continue;
    if (l.copies())
      ops::move_(flat, gradient,
                 {.to_at = l.piece_offsets[i],
                  .to_stride = l.shard,
                  .from_stride = l.pieces[i],
                  .piece = l.pieces[i],
                  .total = l.numels[i],
                  .add = add});
    else
      ops::move_(flat, gradient, {.to_at = l.offsets[i], .piece = l.numels[i], .total = l.numels[i], .add = add});
  }
  unit.pending.clear();
}

void TorchUnits::pack_gradients(UnitId u) {
  Unit& unit = at(u);
  const bool to_gradient = !unit.reduce_input.defined();
  const at::Tensor& flat = to_gradient ? unit.gradient : unit.reduce_input;
  bool add = to_gradient && unit.has_sum;
  if (unit.accumulated.defined()) {
    const Count n = unit.gradients.layout.flat;
    ops::move_(flat, unit.accumulated, {.piece = n, .total = n, .add = add});
    unit.accumulated.reset();
    add = true;
  }
  pack(unit, flat, add);
  if (!unit.traits.reduces) unit.has_sum = true;
}

void TorchUnits::accumulate_unsharded(UnitId u) {
  Unit& unit = at(u);
  const bool add = unit.accumulated.defined();
  if (!add)
    unit.accumulated = own_tensor(options_.meta, unit.gradients.layout.flat, MemoryCategory::kGradients,
                                  unit.spec.options.reduce_dtype);
  pack(unit, unit.accumulated, add);
}

// ---- collectives

CollectiveCall TorchUnits::all_gather_call(UnitId u) {
  const Unit& unit = at(u);
  const bool from_group = unit.group_shard.defined();
  CollectiveCall c;
  c.kind = CollectiveKind::kAllGather;
  c.communicator = from_group ? Communicator(Communicator::kShard, unit.kept_over) : unit.communicator;
  c.unit = u;
  c.in_dtype = c.out_dtype = unit.spec.options.param_dtype;
  c.count = from_group ? unit.layout.flat / unit.kept_over : unit.layout.shard;
  if (options_.meta) return c;
  const at::Tensor& out = unit.traits.copies_out ? unit.gathered : unit.full;
  c.out = out.mutable_data_ptr();
  c.in = from_group          ? unit.group_shard.const_data_ptr()
         : unit.traits.casts ? element(out, unit.rank * unit.layout.shard)
                             : unit.shard.const_data_ptr();
  return c;
}

CollectiveCall TorchUnits::reduce_call(UnitId u) {
  Unit& unit = at(u);
  CollectiveCall c;
  c.unit = u;
  c.scale = 1.0f / static_cast<float>(collectives_.world());
  c.kind = unit.traits.all_reduces ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter;
  c.communicator = unit.communicator;
  c.in_dtype = unit.spec.options.reduce_dtype;
  c.count = unit.gradients.layout.shard;
  const bool had_sum = std::exchange(unit.has_sum, true), apart = unit.group_sum.defined();
  c.accumulate = had_sum && !apart;
  if (apart) c.out_dtype = c.in_dtype;
  if (options_.meta) return c;
  c.in = unit.reduce_input.defined() ? unit.reduce_input.const_data_ptr() : unit.gradient.const_data_ptr();
  c.out = (apart ? unit.group_sum : unit.gradient).mutable_data_ptr();
  // Earlier sums of the step stay fp32 and are rounded once, with this one.
  if (had_sum && apart) c.addend = unit.gradient.const_data_ptr<float>();
  return c;
}

// In the reduce type, as inside a group.
CollectiveCall TorchUnits::replica_call(UnitId u) {
  const Unit& unit = at(u);
  CollectiveCall c;
  c.kind = CollectiveKind::kAllReduce;
  c.communicator = {Communicator::kReplica, unit.communicator.ranks};
  c.unit = u;
  c.in_dtype = unit.spec.options.reduce_dtype;
  c.count = unit.gradients.layout.shard;
  if (options_.meta) return c;
  c.in = (unit.group_sum.defined() ? unit.group_sum : unit.gradient).const_data_ptr();
  c.out = unit.gradient.mutable_data_ptr();
  return c;
}

}  // namespace fsdp
