#include "fsdp/core/seconds.h"

#include <cstdio>

namespace fsdp {

std::string seconds(Nanos t) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(t) * 1e-9);
  return text;
}

}  // namespace fsdp
