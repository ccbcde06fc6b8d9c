// The bucket of a distance in T5's relative position bias (Raffel et al. 2020, arXiv 1910.10683, section 2.1).
#pragma once
#include <cstdint>

namespace fsdp::ops {

// `distance`: key position - query position. Near distances have a bucket each, farther ones share logarithmic ones,
// from `far` on the last. `both_ways`: the upper half of the buckets is for keys behind the query; else those are
// distance 0.
std::int64_t relative_bucket(std::int64_t distance, std::int64_t buckets, bool both_ways, std::int64_t far);

}  // namespace fsdp::ops
