// What was counted on one device beside its partition.
#pragma once
#include <cstdint>

#include "fsdp/core/types.h"

namespace harness {

struct ForeignCounts {
  std::int64_t kernels = 0, memcpys = 0, memsets = 0, communication = 0, optimizer = 0, annotated_copies = 0,
               emulated = 0;
  std::int64_t copy_engine = 0;  // copies that are collectives, counted in `communication` once a range
  std::int64_t without_launch = 0;
  std::int64_t before_launch = 0;  // begin before their launch call began: clocks; taken as launched at once
};

// Collectives of one kind: sums over their rows.
struct KindTimes {
  std::int64_t operations = 0;
  fsdp::Nanos ns = 0, hidden_ns = 0;
};

// What runs on one stream.
struct StreamUse {
  std::int32_t stream = 0;
  std::int64_t compute = 0, communication = 0, copies = 0;  // operations
  std::int64_t all_gathers = 0, reduce_scatters = 0;        // of the communication
  fsdp::Nanos exposed = 0;                                  // charged to its collectives
};

}  // namespace harness
