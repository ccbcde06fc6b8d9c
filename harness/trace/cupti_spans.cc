#include "harness/trace/cupti_spans.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace harness {
namespace {

using fsdp::Lane;
using fsdp::SpanKind;

Lane lane_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kAllGather:
      return Lane::kAllGather;
    case SpanKind::kReduceScatter:
      return Lane::kReduceScatter;
    case SpanKind::kAllReduce:
    case SpanKind::kOtherCollective:
      return Lane::kAllReduce;
    default:
      return Lane::kCompute;
  }
}

// The runtime call that launched it, or the driver call where there is no other.
std::unordered_map<std::uint32_t, const CuptiCall*> launches_of(const std::vector<CuptiCall>& calls) {
  std::unordered_map<std::uint32_t, const CuptiCall*> out;
  out.reserve(calls.size());
  for (const CuptiCall& c : calls) {
    const CuptiCall*& place = out[c.correlation];
    if (place == nullptr || (place->driver && !c.driver)) place = &c;
  }
  return out;
}

// Step, kind, unit, pass, bytes, lane.
void attribute(fsdp::Span& s, const CuptiOp& op, const CuptiRecords& records, const SizeTable& sizes, CuptiTrace& out) {
  const auto external = records.external.find(op.correlation);
  const auto tag = external == records.external.end() ? std::nullopt : unpack_tag(external->second);
  if (tag) {
    s.step = tag->step;
    s.kind = tag->work.kind;
    s.unit = tag->work.unit;
    s.pass = tag->work.pass;
    s.bytes = sizes.bytes_at(tag->size);
  } else {
    ++out.untagged;
    s.bytes = op.bytes;
    s.kind = op.kind == OpKind::kKernel ? SpanKind::kCompute : SpanKind::kCopy;
    if (op.name != kNoName && is_communication_name(records.names[op.name]))
      s.kind = collective_kind(records.names[op.name]);
  }
  // Launched while a step's range alone was open: work of the step that belongs to no unit.
  if (s.kind == SpanKind::kStep)
    s.kind = op.kind == OpKind::kKernel ? SpanKind::kCompute : SpanKind::kCopy, s.bytes = op.bytes;
  s.lane = lane_of(s.kind);
}

void add_notes(CuptiTrace& out) {
  const std::string lost = losses_text(out.losses);
  if (!lost.empty()) out.notes.push_back("the trace of the GPU is incomplete: " + lost + "; trace fewer steps");
  if (out.untagged > 0) {
    out.notes.push_back(std::to_string(out.untagged) +
                        " GPU operations were launched outside any unit: they are shown as work of no unit");
  }
  if (out.unlaunched > 0) {
    out.notes.push_back(std::to_string(out.unlaunched) +
                        " GPU operations have no launch call in the records: they count as issued when they began");
  }
  if (out.early > 0) {
    out.notes.push_back(std::to_string(out.early) +
                        " GPU operations begin before their launch call, which no clock allows: the times of the GPU "
                        "and of the host are apart by more than their bound");
  }
}

}  // namespace

CuptiTrace spans_of_cupti(const CuptiRecords& records, const SizeTable& sizes, const ClockMap& clock, int rank) {
  CuptiTrace out;
  out.losses = records.losses;
  out.clock_error = clock.error();
  out.clock_drift = clock.drift();
  const auto launches = launches_of(records.calls);
  out.spans.reserve(records.ops.size());
  for (const CuptiOp& op : records.ops) {
    fsdp::Span s;
    s.rank = rank;
    s.begin = clock.to_steady(op.begin), s.end = clock.to_steady(op.end);
    s.issued = s.begin;
    if (const auto launch = launches.find(op.correlation); launch != launches.end()) {
      const fsdp::Nanos issued = clock.to_steady(launch->second->begin);
      out.early += issued > s.begin;
      s.issued = std::min(issued, s.begin);
    } else {
      ++out.unlaunched;
    }
    attribute(s, op, records, sizes, out);
    out.spans.push_back(std::move(s));
  }
  const auto by = [](auto... members) {
    return [=](const fsdp::Span& a, const fsdp::Span& b) { return std::tie(a.*members...) < std::tie(b.*members...); };
  };
  std::sort(out.spans.begin(), out.spans.end(), by(&fsdp::Span::issued, &fsdp::Span::begin, &fsdp::Span::end));
  std::uint32_t id = 0;
  for (fsdp::Span& s : out.spans) s.id = ++id;
  std::sort(out.spans.begin(), out.spans.end(), by(&fsdp::Span::begin, &fsdp::Span::id));
  for (const CuptiOverhead& o : records.overheads)
    if (o.end > o.begin) out.overheads.emplace_back(clock.to_steady(o.begin), clock.to_steady(o.end));
  add_notes(out);
  return out;
}

}  // namespace harness
