// Wire: an emulated network. What a call takes on it: fsdp/comm/wire.h.
#pragma once
#include "fsdp/core/types.h"

namespace fsdp {

struct Wire {
  Nanos latency = 0;
  double bytes_per_second = 0;  // of each rank, in each direction; at least 1, whole bytes count
  bool operator==(const Wire&) const = default;
};

}  // namespace fsdp
