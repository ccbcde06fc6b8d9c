// ShardLayout: parameter sizes + ranks + alignment -> offsets, padding, per-rank ranges of one unit. A pure function.
// Flat layout, element-sharded (fsdp.md 2.1, 2.8): every parameter starts on 128 bytes, the tail is padded so that
// every rank's shard is equally long and starts on 128 bytes (trap T57).
#pragma once
#include <vector>

#include "fsdp/core/types.h"

namespace fsdp {

inline constexpr Bytes kShardAlignment = 128;

struct ShardLayout {
  std::vector<Count> offsets;  // of each parameter in the flat buffer, elements
  std::vector<Count> numels;
  Count payload = 0;  // sum of numels
  Count flat = 0;     // length of the padded flat buffer = world * shard
  Count shard = 0;    // elements per rank
  int world = 1;      // ranks that share the unit (1 for no_shard)
  Count padding() const { return flat - payload; }

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
Count align_elements_for(Dtype param_dtype, Dtype reduce_dtype);

}  // namespace fsdp
