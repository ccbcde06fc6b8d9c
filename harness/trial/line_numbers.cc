#include "harness/trial/line_numbers.h"

#include <nlohmann/json.hpp>
#include <string>

#include "fsdp/core/errors.h"

namespace harness {

std::int64_t whole_number(const nlohmann::json& j, const char* place, const char* what, Range range) {
  const bool fits = j.is_number_integer() &&
                    (!j.is_number_unsigned() || j.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max());
  const std::int64_t n = fits ? j.get<std::int64_t>() : 0;
  if (fits && n >= range.low && n <= range.high) return n;
  throw fsdp::CommError("[" + std::string(place) + "] " + what + " is " + j.dump().substr(0, 40) +
                        ", not a whole number from " + std::to_string(range.low) + " to " + std::to_string(range.high));
}

}  // namespace harness
