#include "fsdp/core/span.h"

namespace fsdp {

std::string_view name_of(SpanKind k) {
  switch (k) {
    case SpanKind::kCompute:
      return "compute";
    case SpanKind::kOptimizer:
      return "optimizer";
    case SpanKind::kCopy:
      return "copy";
    case SpanKind::kAllGather:
      return "all_gather";
    case SpanKind::kReduceScatter:
      return "reduce_scatter";
    case SpanKind::kAllReduce:
      return "all_reduce";
    case SpanKind::kOtherCollective:
      return "other_collective";
    case SpanKind::kWait:
      return "wait";
    case SpanKind::kMemoryWait:
      return "memory_wait";
    case SpanKind::kStep:
      return "step";
  }
  return "?";
}

}  // namespace fsdp
