#include "harness/analysis/conventions.h"

#include <algorithm>
#include <cmath>

namespace harness {

using fsdp::Nanos;

namespace {
constexpr std::array<std::string_view, 4> kNames = {"exclusive", "hta", "tracelens", "nsys"};
constexpr std::int64_t kKernelWaitThreshold = 30;  // HTA's default, in the unit of the times
}  // namespace

std::string_view name_of(Convention c) { return kNames[static_cast<std::size_t>(c)]; }

std::optional<Convention> convention_from(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Convention>(i);
  }
  return std::nullopt;
}

TraceLensTimes tracelens_times(const ForeignPartition& p) {
  const RunningTimes& r = p.whole.running;
  // By name alone: what is not called after NCCL is a kernel or a copy like any other.
  constexpr unsigned kComputes = kRunsKernels | kRunsMemset | kRunsOtherCommunication;
  TraceLensTimes t;
  t.span = p.whole.partition.end - p.whole.partition.begin;
  t.compute = r.length(kComputes);
  t.exposed_communication = r.length(kRunsCommunication, kComputes);
  t.exposed_memcpy = r.length(kRunsMemcpy | kRunsCopyEngine, kComputes | kRunsCommunication);
  t.idle = t.span - t.compute - t.exposed_communication - t.exposed_memcpy;
  t.hidden_communication = r.length(kRunsCommunication) - t.exposed_communication;
  return t;
}

NsysTimes nsys_times(const ForeignPartition& p) {
  const RunningTimes& r = p.whole.running;
  NsysTimes t;
  constexpr unsigned kComputes = kRunsKernels | kRunsOtherCommunication;
  t.span = p.kernels_end - p.kernels_begin;
  t.overlap = r.both(kComputes, kRunsCommunication);
  t.compute_only = r.length(kComputes) - t.overlap;
  const Nanos communication = r.length(kRunsCommunication);
  t.communication_only = communication - t.overlap;
  t.idle = t.span - t.compute_only - t.communication_only - t.overlap;
  if (communication > 0) t.overlap_pct = 100.0 * static_cast<double>(t.overlap) / static_cast<double>(communication);
  return t;
}

HtaClass hta_class(std::string_view n) {
  auto has = [&](std::string_view part) { return n.find(part) != std::string_view::npos; };
  if (n.starts_with("nccl") || n.starts_with("hip") || n.starts_with("hccl") || has("ncclKernel")) {
    return HtaClass::kCommunication;
  }
  if (n.starts_with("Memcpy") || n.starts_with("Memset") || n.starts_with("dma")) return HtaClass::kMemory;
  if (has("Memcpy") || n.starts_with("Memset") || has("Sync")) return HtaClass::kOther;
  return HtaClass::kCompute;
}

void HtaSweep::Merged::add(std::int64_t b, std::int64_t e) {
  if (any && b <= latest) {
    end = std::max(end, e);
  } else {
    close();
    if (!any) first = b;
    begin = b;
    end = e;
  }
  latest = any ? std::max(latest, e) : e;
  any = true;
}

void HtaSweep::Merged::close() {
  if (!any) return;
  total += end - begin;
  if (keep != nullptr) keep->push_back({begin, end});
}

HtaSweep::HtaSweep(const HtaOptions& options, const std::vector<Annotation>& steps,
                   const std::vector<HtaClass>& classes, bool fractional)
    : options_(options), classes_(classes), round_(options.round && fractional) {
  for (const Annotation& s : steps) {
    last_step_begin_ = std::max(last_step_begin_, s.begin);
    last_step_end_ = std::max(last_step_end_, s.end);
  }
  filter_ = steps.size() >= 2;
  out_.nanoseconds = !options.round;
  out_.last_step_dropped = filter_ && !options.include_last_step;
  for (std::size_t i = 0; i < by_class_.size(); ++i) by_class_[i].keep = &closed_[i];
}

// Whole microseconds through double, as the tool computes them.
std::int64_t HtaSweep::up(Nanos ns) const {
  if (!round_) return options_.round ? ns / 1000 : ns;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(static_cast<long double>(ns) / 1000)));
}

std::int64_t HtaSweep::down(Nanos begin, Nanos end) const {
  if (!round_) return options_.round ? end / 1000 : end;
  const auto b = static_cast<double>(static_cast<long double>(begin) / 1000);
  const auto d = static_cast<double>(static_cast<long double>(end - begin) / 1000);
  return static_cast<std::int64_t>(std::floor(b + d));
}

void HtaSweep::add(const DeviceOp& op) {
  if (filter_) {
    if (op.launch_begin == kNoTime) return;
    if (options_.include_last_step ? op.launch_begin > last_step_end_ : op.launch_begin >= last_step_begin_) return;
  }
  ++out_.operations;
  const std::int64_t b = up(op.begin), e = down(op.begin, op.end);
  all_.add(b, e);
  const HtaClass cls = classes_[op.name];
  if (cls != HtaClass::kOther) {
    by_class_[cls == HtaClass::kCompute ? 0 : (cls == HtaClass::kCommunication ? 1 : 2)].add(b, e);
  }
  Stream& s = streams_[op.stream];
  if (s.any) {
    const std::int64_t gap = b - s.previous_end;
    const bool host = op.launch_begin != kNoTime && up(op.launch_begin) > s.previous_end;
    (host ? s.idle.host_wait : gap < kKernelWaitThreshold ? s.idle.kernel_wait : s.idle.other) += gap;
  }
  s.any = true;
  s.previous_end = e;
  if (closed_[0].size() + closed_[1].size() + closed_[2].size() <= settle_above_) return;
  settle(b - 1);
  // What an interval that is still open holds back is looked at again when there is twice as much of it.
  settle_above_ = std::max(kSettleAbove, 2 * (closed_[0].size() + closed_[1].size() + closed_[2].size()));
}

// Counts the closed intervals up to `until`, before which nothing new can begin.
void HtaSweep::settle(std::int64_t until) {
  for (const Merged& m : by_class_) {
    if (m.any) until = std::min(until, m.begin);
  }
  std::array<IntervalSet, 3> sets;
  std::vector<std::int64_t> cuts{until};
  for (std::size_t i = 0; i < 3; ++i) {
    sets[i] = IntervalSet(closed_[i]);
    std::vector<Interval> rest;
    for (const Interval& x : closed_[i]) {
      if (x.begin < until) cuts.push_back(x.begin);
      if (x.end < until) cuts.push_back(x.end);
      if (x.end > until) rest.push_back({std::max(x.begin, until), x.end});
    }
    closed_[i] = std::move(rest);
  }
  std::sort(cuts.begin(), cuts.end());
  std::array<std::size_t, 3> at{};
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    unsigned set = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::vector<Interval>& x = sets[i].intervals();
      while (at[i] < x.size() && x[at[i]].end <= cuts[k]) ++at[i];
      if (at[i] < x.size() && x[at[i]].begin <= cuts[k]) set |= 1u << i;
    }
    out_.by_type[set] += cuts[k + 1] - cuts[k];
  }
}

HtaResult HtaSweep::finish() {
  all_.close();
  std::int64_t until = 0;
  for (Merged& m : by_class_) {
    m.close();
    if (m.any) until = std::max(until, m.latest);
    m.any = false;
  }
  settle(until);
  out_.by_type[0] = 0;
  if (all_.any) {
    out_.kernel_time = all_.end - all_.first;
    out_.idle = out_.kernel_time - all_.total;
  }
  out_.compute = by_class_[0].total;
  out_.non_compute = out_.kernel_time - out_.compute - out_.idle;
  out_.communication = by_class_[1].total;
  out_.overlap = out_.by_type[3] + out_.by_type[7];
  if (out_.communication > 0) {
    out_.overlap_pct = 100.0 * static_cast<double>(out_.overlap) / static_cast<double>(out_.communication);
  }
  for (auto& [stream, s] : streams_) {
    s.idle.stream = stream;
    out_.streams.push_back(s.idle);
  }
  return std::move(out_);
}

}  // namespace harness
