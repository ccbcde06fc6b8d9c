#include "fsdp/plan/shard_layout.h"

#include <algorithm>
#include <set>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

Count round_up(Count n, Count multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

ShardLayout make_flat_layout(const std::vector<Count>& numels, int world, Count align_elements,
                             Count shard_align_elements) {
  if (shard_align_elements == 0) shard_align_elements = align_elements;
  SHARDSCOPE_CHECK(world >= 1 && align_elements >= 1 && shard_align_elements >= 1,
                   "world " + std::to_string(world) + ", alignment " + std::to_string(align_elements));
  ShardLayout layout;
  layout.world = world;
  layout.numels = numels;
  Count end = 0;
  for (Count n : numels) {
    SHARDSCOPE_CHECK(n >= 0, "numel " + std::to_string(n));
    const Count begin = round_up(end, align_elements);
    layout.offsets.push_back(begin);
    layout.payload += n;
    end = begin + n;
  }
  layout.flat = round_up(end, world * shard_align_elements);
  layout.shard = layout.flat / world;
  layout.full = layout.flat;
  return layout;
}

ShardLayout make_per_parameter_layout(const std::vector<std::vector<Count>>& shapes, int world, Count align_elements) {
  SHARDSCOPE_CHECK(world >= 1 && align_elements >= 1,
                   "world " + std::to_string(world) + ", alignment " + std::to_string(align_elements));
  ShardLayout layout;
  layout.per_parameter = true;
  layout.world = world;
  for (const std::vector<Count>& shape : shapes) {
    const Count rows = shape.empty() ? 1 : shape.front();
    Count row = 1;
    for (std::size_t d = 1; d < shape.size(); ++d) row *= shape[d];
    const Count piece = round_up(rows, world) / world * row;
    layout.numels.push_back(rows * row);
    layout.payload += rows * row;
    layout.pieces.push_back(piece);
    layout.piece_offsets.push_back(layout.shard);
    layout.shard += piece;
    // Alone, the shard is the full parameters: nothing is copied.
    layout.offsets.push_back(world == 1 ? layout.piece_offsets.back() : round_up(layout.full, align_elements));
    layout.full = layout.offsets.back() + world * piece;
  }
  layout.flat = world * layout.shard;
  return layout;
}

ShardLayout::Range ShardLayout::local(std::size_t parameter, int rank) const {
  if (per_parameter) {
    const Count begin = std::min(rank * pieces.at(parameter), numels[parameter]);
    const Count end = std::min((rank + 1) * pieces[parameter], numels[parameter]);
    return begin >= end ? Range{} : Range{begin, end, piece_offsets[parameter]};
  }
  const Count shard_begin = rank * shard;
  const Count begin = std::max(offsets.at(parameter), shard_begin);
  const Count end = std::min(offsets[parameter] + numels[parameter], shard_begin + shard);
  if (begin >= end) return {};
  return {begin - offsets[parameter], end - offsets[parameter], begin - shard_begin};
}

Count align_elements_for(Dtype param_dtype, Dtype reduce_dtype) {
  return kShardAlignment / std::min(size_of(param_dtype), size_of(reduce_dtype));
}

namespace {

bool is_hybrid(const UnitSpec& u) {
  return u.options.strategy == Strategy::kHybridShard || u.options.strategy == Strategy::kHybridShardZero2;
}

ShardLayout layout_of(const UnitSpec& unit, const ModuleTree& tree, const std::vector<ParameterId>& parameters,
                      int world) {
  const UnitOptions& o = unit.options;
  const Count align = align_elements_for(o.param_dtype, o.reduce_dtype);
  const int ranks = shard_ranks(unit, world);
  std::vector<std::vector<Count>> shapes;
  std::vector<Count> numels;
  for (ParameterId p : parameters) {
    shapes.push_back(tree.parameters[static_cast<std::size_t>(p)].shape);
    numels.push_back(tree.parameters[static_cast<std::size_t>(p)].numel());
  }
  return o.layout == Layout::kPerParameter ? make_per_parameter_layout(shapes, ranks, align)
                                           : make_flat_layout(numels, ranks, align);
}

}  // namespace

int shard_ranks(const UnitSpec& unit, int world) {
  if (unit.options.strategy == Strategy::kNoShard) return 1;
  if (!is_hybrid(unit)) return world;
  const int group = unit.options.group;
  if (group < 1 || world % group != 0)
    throw ConfigError("[strategy] unit " + unit.name + ": groups of " + std::to_string(group) +
                      " do not divide a world of " + std::to_string(world) + "; use a size that does");
  return group;
}

bool replicates(const UnitSpec& unit, int world) {
  const int ranks = shard_ranks(unit, world);
  return ranks > 1 && ranks < world;
}

int reshard_ranks(const UnitSpec& unit, int world) {
  const int group = unit.options.reshard_group, ranks = shard_ranks(unit, world);
  if (group <= 1 || ranks == 1) return 0;
  if (ranks % group != 0)
    throw ConfigError("[reshard_after_forward] unit " + unit.name + ": groups of " + std::to_string(group) +
                      " do not divide the " + std::to_string(ranks) + " ranks that share it; use a size that does");
  return group == ranks ? 0 : group;
}

PlanGroups groups_of(const UnitPlan& plan, int world) {
  std::set<int> shard, regather;
  PlanGroups groups;
  for (const UnitSpec& unit : plan.units) {
    const int ranks = shard_ranks(unit, world);
    if (replicates(unit, world)) shard.insert(ranks);
    if (ranks == world) groups.world = true;
    if (const int kept = reshard_ranks(unit, world); kept > 0) regather.insert(kept);
  }
  groups.shard.assign(shard.begin(), shard.end());
  groups.regather.assign(regather.begin(), regather.end());
  return groups;
}

ShardLayout unit_layout(const UnitSpec& unit, const ModuleTree& tree, int world) {
  return layout_of(unit, tree, unit.parameters, world);
}

GradientLayout gradient_layout(const UnitSpec& unit, const ModuleTree& tree, int world) {
  GradientLayout g;
  std::vector<ParameterId> with_gradient;
  bool any = false;
  for (ParameterId p : unit.parameters) any = any || tree.parameters[static_cast<std::size_t>(p)].trainable;
  for (ParameterId p : unit.parameters) {
    const bool flat = unit.options.layout == Layout::kFlat;
    const bool has = flat ? any : tree.parameters[static_cast<std::size_t>(p)].trainable;
    g.index.push_back(has ? static_cast<int>(with_gradient.size()) : -1);
    if (has) with_gradient.push_back(p);
  }
  g.layout = layout_of(unit, tree, with_gradient, world);
  return g;
}

}  // namespace fsdp
