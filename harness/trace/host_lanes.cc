#include "harness/trace/host_lanes.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "harness/analysis/interval_set.h"

namespace harness {
namespace {

using fsdp::Bytes;
using fsdp::Nanos;
using fsdp::SpanKind;

constexpr std::int32_t kHost = -1;                            // the number of a device that is none
constexpr std::size_t kMostOperators = std::size_t{8} << 20;  // 400 MB
constexpr Bytes kMostBytes = Bytes{1} << 60;

std::uint32_t hash_of(std::string_view text) {
  std::uint32_t h = 2166136261u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

Bytes element_size(std::string_view types) {
  for (const std::string_view two : {"BFloat16", "Half"}) {
    if (types.find(two) != std::string_view::npos) return 2;
  }
  return types.find("double") != std::string_view::npos ? 8 : types.find("float") != std::string_view::npos ? 4 : 0;
}

// Elements of the largest tensor of "[[4, 8], [16], []]".
Bytes largest(std::string_view dims) {
  Bytes most = 0, product = 0;
  const char* p = dims.data();
  const char* const end = p + dims.size();
  while (p < end) {
    Bytes n = 0;
    const auto [next, error] = std::from_chars(p, end, n);
    if (error == std::errc()) {
      const bool overflows = __builtin_mul_overflow(product == 0 ? 1 : product, n, &product);
      if (overflows || product < 0 || product > kMostBytes / 8) product = 0;
      p = next;
    } else {
      if (*p == '[' || *p == ']') most = std::max(most, std::exchange(product, 0));
      ++p;
    }
  }
  return most;
}

bool is_call(std::string_view name) { return name.starts_with("c10d::"); }

}  // namespace

void HostLanes::add_operator(ForeignTrace& trace, const Event& e) {
  if (work_.size() >= kMostOperators) {
    if (!full_) {
      trace.facts.notes.push_back("more than " + std::to_string(kMostOperators) +
                                  " operators: those that follow are not read");
    }
    trace.facts.partial = full_ = true;
    return;
  }
  // Times of one operator at different sizes are not held against each other: without sizes each is its own.
  const std::uint32_t shape = e.dims.empty() ? static_cast<std::uint32_t>(work_.size()) + 1 : hash_of(e.dims);
  work_.push_back({e.begin, e.end, e.process, trace.thread(e.process, e.thread), trace.name(e.name), shape});
}

void HostLanes::add_collective(ForeignTrace& trace, const Event& e) {
  const SpanKind kind = collective_kind(e.name);
  const std::uint32_t thread = trace.thread(e.process, e.thread);
  if (is_call(e.name)) {
    // Over Gloo a reduce-scatter is carried out as an all-reduce.
    if (kind == SpanKind::kOtherCollective) return;
    calls_[{e.process, kind == SpanKind::kAllGather}].push_back(
        {e.begin, e.process, thread, kind, largest(e.dims) * element_size(e.types)});
  } else if (e.name.starts_with("gloo:")) {
    ranges_[{e.process, kind == SpanKind::kAllGather}].push_back(
        {e.begin, e.end, e.process, thread, trace.name(e.name), 0});
  }
}

void HostLanes::add(ForeignTrace& trace, const Work& w, const Call* call) {
  DeviceOp op;
  op.begin = w.begin, op.end = w.end;
  op.name = w.name, op.shape = w.shape;
  op.stream = static_cast<std::int32_t>(w.thread);
  op.row = trace.row(0, kHost);
  op.correlation = next_++;
  op.on_host = true;
  if (call != nullptr) op.collective = call->kind, op.bytes = call->bytes;
  trace.add_op(op);
  const Nanos issued = call != nullptr ? call->begin : w.begin;
  trace.add_call({}, w.process, op.correlation, call != nullptr ? call->thread : w.thread, issued, issued);
}

void HostLanes::drop_work_of_transfers() {
  std::map<std::uint32_t, std::vector<Interval>> transfers;
  for (const auto& [key, ranges] : ranges_)
    for (const Work& r : ranges) transfers[r.thread].push_back({r.begin, r.end});
  std::map<std::uint32_t, IntervalSet> inside;
  for (auto& [thread, ranges] : transfers) inside.emplace(thread, IntervalSet(std::move(ranges)));
  std::erase_if(work_, [&](const Work& w) {
    const auto found = inside.find(w.thread);
    return found != inside.end() && found->second.length_within(w.begin, w.begin + 1) > 0;
  });
}

void HostLanes::add_work(ForeignTrace& trace) {
  std::stable_sort(work_.begin(), work_.end(), [](const Work& a, const Work& b) {
    return std::tuple(a.thread, a.begin, -a.end) < std::tuple(b.thread, b.begin, -b.end);
  });
  std::uint32_t thread = kNoThread;
  Nanos until = kNoTime;
  for (const Work& w : work_) {
    if (w.thread == thread && w.begin < until) continue;  // inside another one
    thread = w.thread, until = w.end;
    add(trace, w, nullptr);
  }
}

void HostLanes::add_transfers(ForeignTrace& trace, std::vector<Work>& ranges, std::vector<Call>& calls) {
  std::stable_sort(ranges.begin(), ranges.end(), [](const Work& a, const Work& b) { return a.begin < b.begin; });
  std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin < b.begin; });
  std::size_t next = 0;
  for (const Work& r : ranges) {
    const bool issued = next < calls.size() && calls[next].begin <= r.begin;
    add(trace, r, issued ? &calls[next] : nullptr);
    next += issued;
  }
}

void HostLanes::finish(ForeignTrace& trace) {
  drop_work_of_transfers();
  add_work(trace);
  for (auto& [key, ranges] : ranges_) add_transfers(trace, ranges, calls_[key]);
  trace.facts.host_lanes = true;
}

}  // namespace harness
