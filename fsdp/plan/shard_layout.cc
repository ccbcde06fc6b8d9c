#include "fsdp/plan/shard_layout.h"

#include <algorithm>

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
  return layout;
}

ShardLayout::Range ShardLayout::local(std::size_t parameter, int rank) const {
  const Count shard_begin = rank * shard;
  const Count begin = std::max(offsets.at(parameter), shard_begin);
  const Count end = std::min(offsets[parameter] + numels[parameter], shard_begin + shard);
  if (begin >= end) return {};
  return {begin - offsets[parameter], end - offsets[parameter], begin - shard_begin};
}

Count align_elements_for(Dtype param_dtype, Dtype reduce_dtype) {
  return kShardAlignment / std::min(size_of(param_dtype), size_of(reduce_dtype));
}

}  // namespace fsdp
