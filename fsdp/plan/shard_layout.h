// ShardLayout: parameter sizes + ranks + alignment -> offsets, padding, per-rank ranges of one unit. A pure function.
//
//   flat           One buffer is cut into equal pieces, element by element. Every parameter starts on a multiple of
//                  128 bytes, and the tail is padded, so that the shards of all ranks are equally long and start on
//                  128 bytes too. The gathered buffer holds the parameters themselves.
//   per_parameter  Each parameter is cut along dimension 0 into ceil(d0 / ranks) rows; the last ranks hold fewer or
//                  none. The shard of a rank is its padded pieces, one after the other. The gathered buffer is sorted
//                  by rank, so each parameter must be copied out to be whole.
#pragma once
#include <vector>

#include "fsdp/core/types.h"
#include "fsdp/plan/module_tree.h"
#include "fsdp/plan/unit_plan.h"

namespace fsdp {

inline constexpr Bytes kShardAlignment = 128;

struct ShardLayout {
  bool per_parameter = false;
  std::vector<Count> offsets;  // of each parameter in the buffer of full parameters, elements
  std::vector<Count> numels;
  Count payload = 0;  // sum of numels
  Count flat = 0;     // length of what is gathered or reduced, padding included = world * shard
  Count shard = 0;    // elements per rank
  Count full = 0;     // length of the buffer of full parameters; flat: what is gathered
  int world = 1;      // ranks that share the unit (1 for no_shard)
  // per_parameter: elements of a rank's piece of each parameter, padded, and where the piece lies in the rank's shard.
  std::vector<Count> pieces, piece_offsets;
  Count padding() const { return flat - payload; }
  // What is gathered is not yet the parameters: a copy follows each gather and precedes each reduction.
  bool copies() const { return per_parameter && world > 1; }

  struct Range {
    Count begin = 0, end = 0;  // within the parameter, row-major elements; begin == end: this rank holds none of it
    Count at = 0;              // where it lies in the rank's shard
  };
  Range local(std::size_t parameter, int rank) const;
};

// `align_elements`: elements per 128 bytes of the narrowest type that travels (32 for fp32, 64 for bf16).
// `shard_align_elements`: what a rank's shard is a multiple of; 0: the same. Other values describe what other programs
// do (FSDP1 with original parameters: 16 bytes and 1 element; without: 1 and 1).
ShardLayout make_flat_layout(const std::vector<Count>& numels, int world, Count align_elements,
                             Count shard_align_elements = 0);
// Pieces are packed without alignment, as FSDP2 does; only the full parameters start on `align_elements`.
ShardLayout make_per_parameter_layout(const std::vector<std::vector<Count>>& shapes, int world, Count align_elements);
Count align_elements_for(Dtype param_dtype, Dtype reduce_dtype);

// Ranks that one copy of the unit is spread over: the world, the group of a hybrid strategy, 1 for no_shard. Throws
// ConfigError if a group does not divide what it is a part of.
int shard_ranks(const UnitSpec& unit, int world);
// Groups that share the unit hold copies of each other's shards (hybrid).
bool replicates(const UnitSpec& unit, int world);
// Ranks that keep a copy among them between forward and backward (reshard_after_forward by a group size); 0: none.
int reshard_ranks(const UnitSpec& unit, int world);

// Groups of consecutive ranks, smaller than the world, that a plan asks for: their sizes, ascending.
struct PlanGroups {
  bool world = false;         // there are units that all ranks share
  std::vector<int> shard;     // groups that share units (hybrid)
  std::vector<int> regather;  // groups that keep copies after forward
};
PlanGroups groups_of(const UnitPlan& plan, int world);

// Of all parameters of the unit.
ShardLayout unit_layout(const UnitSpec& unit, const ModuleTree& tree, int world);
// Of what has gradients. Flat: all of the unit if anything in it is trainable, since gradients are cut where the
// parameters are. Per parameter: the trainable parameters. Nothing trainable: an empty layout.
struct GradientLayout {
  ShardLayout layout;
  std::vector<int> index;  // by the unit's parameters: place in `layout`, or -1
};
GradientLayout gradient_layout(const UnitSpec& unit, const ModuleTree& tree, int world);

}  // namespace fsdp
