// Counter-based token ids: the same data in every program and for every sharding. Plain C++.
#pragma once
#include <cstdint>
#include <vector>

namespace harness {

// Tokens 0 .. seq of each of `batch` samples, the first being global sample `first_sample`: [batch][seq + 1]. Inputs
// are positions 0 .. seq - 1 of a row, targets 1 .. seq.
std::vector<std::int64_t> synthetic_tokens(std::uint64_t seed, std::int64_t first_sample, std::int64_t batch,
                                           std::int64_t seq, std::int64_t vocab);

}  // namespace harness
