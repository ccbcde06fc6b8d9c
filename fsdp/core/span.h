// Span: the common currency. The virtual world, the host recorder, CUPTI and the trace readers all yield spans, so that
// one analysis and one report serve every source.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "fsdp/core/types.h"

namespace fsdp {

enum class SpanKind : std::uint8_t {
  kCompute,    // model work: compute lane
  kOptimizer,  // optimizer, clipping: compute lane
  kCopy,       // FSDP's own copies, casts, packing: compute lane
  kAllGather,  // in flight: the lane executes it, wire time included
  kReduceScatter,
  kAllReduce,
  kOtherCollective,
  kWait,        // host lane: blocked on a collective (`waits` names it)
  kMemoryWait,  // host lane: blocked for lack of a slot or of budget
  kStep,        // host lane: one whole step
};
std::string_view name_of(SpanKind k);
constexpr bool is_collective(SpanKind k) {
  return k == SpanKind::kAllGather || k == SpanKind::kReduceScatter || k == SpanKind::kAllReduce ||
         k == SpanKind::kOtherCollective;
}

// [begin, end) in integer nanoseconds of the source's clock. A span of length 0 contributes nothing.
struct Span {
  std::uint32_t id = 0;  // > 0, unique in one rank's trace, in issue order
  std::int32_t rank = 0;
  std::int32_t step = 0;  // index within the traced repetition, from 0
  Lane lane = Lane::kHost;
  SpanKind kind = SpanKind::kCompute;
  UnitId unit = kNoUnit;
  Pass pass = Pass::kNone;
  Nanos issued = 0;  // when the host issued it; == begin where the issuing thread did the work itself
  Nanos begin = 0;
  Nanos end = 0;
  Bytes bytes = 0;                   // full (unsharded, padded) buffer of a collective; bytes moved by a copy
  std::vector<std::uint32_t> waits;  // ids of the spans whose events this one waited for, as recorded
};

}  // namespace fsdp
