// Numbers in the lines that processes send each other. A line may come from another version or a stranger: each number
// is read with the range in which it makes sense, so that it can be summed, indexed and handed to the system.
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>

namespace harness {

struct Range {
  std::int64_t low, high;
};
inline constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();

// `place` is the part of the program ("trial"), `what` the number in words. Throws fsdp::CommError: no whole number,
// outside of the range.
std::int64_t whole_number(const nlohmann::json& j, const char* place, const char* what, Range range);

}  // namespace harness
