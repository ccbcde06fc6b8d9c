// A timeline written by hand: spans of one rank, with issue times and waits. Times in units, as in the design's tables.
#pragma once
#include <string>
#include <vector>

#include "harness/analysis/partition.h"

namespace harness {

class Timeline {
 public:
  // Collectives; issued at 0 unless said.
  std::uint32_t all_gather(int unit, fsdp::Nanos begin, fsdp::Nanos end, fsdp::Pass pass) {
    return add(fsdp::SpanKind::kAllGather, fsdp::Lane::kAllGather, unit, pass, begin, end, 0, {});
  }
  std::uint32_t reduce_scatter(int unit, fsdp::Nanos begin, fsdp::Nanos end) {
    return add(fsdp::SpanKind::kReduceScatter, fsdp::Lane::kReduceScatter, unit, fsdp::Pass::kBackward, begin, end, 0,
               {});
  }
  std::uint32_t compute(int unit, fsdp::Nanos begin, fsdp::Nanos end, fsdp::Pass pass,
                        std::vector<std::uint32_t> waits = {}) {
    return add(fsdp::SpanKind::kCompute, fsdp::Lane::kCompute, unit, pass, begin, end, 0, std::move(waits));
  }
  std::uint32_t add(fsdp::SpanKind kind, fsdp::Lane lane, int unit, fsdp::Pass pass, fsdp::Nanos begin, fsdp::Nanos end,
                    fsdp::Nanos issued, std::vector<std::uint32_t> waits) {
    fsdp::Span s;
    s.id = static_cast<std::uint32_t>(spans.size() + 1);
    s.kind = kind;
    s.lane = lane;
    s.unit = unit;
    s.pass = pass;
    s.begin = begin;
    s.end = end;
    s.issued = issued;
    s.waits = std::move(waits);
    spans.push_back(s);
    return s.id;
  }
  // The step [0, end).
  Timeline& step(fsdp::Nanos end, fsdp::Nanos begin = 0) {
    add(fsdp::SpanKind::kStep, fsdp::Lane::kHost, fsdp::kNoUnit, fsdp::Pass::kNone, begin, end, begin, {});
    return *this;
  }
  fsdp::Span& span(std::uint32_t id) { return spans[id - 1]; }
  StepPartition partition() const { return partition_steps(spans).at(0); }

  std::vector<fsdp::Span> spans;
};

// "compute 11, overlapped 4, exposed_all_gather_forward 2": the classes that are not zero.
inline std::string text_of(const Partition& p) {
  std::string out;
  for (int i = 0; i < kPartitionClassCount; ++i) {
    if (p[i] == 0) continue;
    out +=
        (out.empty() ? "" : ", ") + std::string(name_of(static_cast<PartitionClass>(i))) + " " + std::to_string(p[i]);
  }
  return out;
}

}  // namespace harness
