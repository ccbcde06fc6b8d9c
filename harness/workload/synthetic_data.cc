#include "harness/workload/synthetic_data.h"

namespace harness {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;
constexpr std::uint64_t kTokenStream = 0x746F6B656Eull;

// Output n of SplitMix64 seeded with s.
std::uint64_t output(std::uint64_t s, std::uint64_t n) {
  std::uint64_t z = s + (n + 1) * kGolden;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<std::int64_t> synthetic_tokens(std::uint64_t seed, std::int64_t first_sample, std::int64_t batch,
                                           std::int64_t seq, std::int64_t vocab) {
  const std::uint64_t stream = output(seed ^ kTokenStream, 0);
  std::vector<std::int64_t> tokens;
  tokens.reserve(static_cast<std::size_t>(batch * (seq + 1)));
  for (std::int64_t n = first_sample * (seq + 1); n < (first_sample + batch) * (seq + 1); ++n)
    tokens.push_back(static_cast<std::int64_t>((output(stream, static_cast<std::uint64_t>(n)) >> 32) %
                                               static_cast<std::uint64_t>(vocab)));
  return tokens;
}

}  // namespace harness
