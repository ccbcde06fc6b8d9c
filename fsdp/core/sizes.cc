#include "fsdp/core/sizes.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace fsdp {

std::string readable_bytes(Bytes n) {
  double value = static_cast<double>(n);
  if (std::fabs(value) < 1024) return std::to_string(n) + " B";
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (std::fabs(value) < 1023.995) break;
    value /= 1024;
    unit = next;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, unit);
  return text.data();
}

}  // namespace fsdp
