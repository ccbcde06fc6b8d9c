#include "harness/analysis/foreign_partition.h"

#include <algorithm>
#include <tuple>

namespace harness {

using fsdp::Nanos;
using fsdp::SpanKind;

namespace {

int bit_index(unsigned bit) { return __builtin_ctz(bit); }

unsigned bit_of(const DeviceOp& op) {
  if (op.cls == OpClass::kCommunication) {
    if (op.kind != OpKind::kKernel && op.range >= 0) return kRunsCopyEngine;
    return op.other_library ? kRunsOtherCommunication : kRunsCommunication;
  }
  if (op.kind == OpKind::kMemcpy) return kRunsMemcpy;
  if (op.kind == OpKind::kMemset) return kRunsMemset;
  if (op.cls == OpClass::kOptimizer) return kRunsOptimizer;
  return op.cls == OpClass::kCopy ? kRunsCopyKernel : kRunsCompute;
}

PartitionClass exposed_class(const DeviceOp& c) {
  if (c.collective == SpanKind::kReduceScatter) return PartitionClass::kExposedReduceScatter;
  if (c.collective == SpanKind::kAllGather && c.pass == fsdp::Pass::kForward) {
    return PartitionClass::kExposedAllGatherForward;
  }
  if (c.collective == SpanKind::kAllGather && c.pass == fsdp::Pass::kBackward) {
    return PartitionClass::kExposedAllGatherBackward;
  }
  return PartitionClass::kExposedOther;
}

void add_detail(RowIndex& index, std::vector<PartitionDetail>& all, int list, const PartitionDetail& d) {
  const RowKey key{list, d.unit, static_cast<std::uint8_t>(d.cls), d.pass, d.collective};
  auto same = [&](const PartitionDetail& x) {
    return x.cls == d.cls && x.unit == d.unit && x.pass == d.pass && x.collective == d.collective;
  };
  index.row(all, key, same, [&] { return PartitionDetail{d.cls, d.unit, d.pass, d.collective, 0}; }).ns += d.ns;
}

}  // namespace

ForeignStep ForeignPartition::sum_of_steps(bool with_cut) const {
  ForeignStep out;
  RowIndex details, savings;
  bool first = true;
  for (const ForeignStep& s : steps) {
    if (!included(s, with_cut)) continue;
    StepPartition& sum = out.partition;
    for (std::size_t i = 0; i < sum.classes.size(); ++i) sum.classes[i] += s.partition.classes[i];
    sum.communication += s.partition.communication;
    sum.communication_hidden += s.partition.communication_hidden;
    for (const PartitionDetail& d : s.partition.details) add_detail(details, sum.details, 0, d);
    for (const Saving& x : s.savings) add_saving(savings, out.savings, 0, x);
    out.host_not_issued += s.host_not_issued;
    out.host_launch += s.host_launch;
    out.idle_dependency += s.idle_dependency;
    out.idle_unknown += s.idle_unknown;
    out.unrecorded += s.unrecorded;
    out.operations += s.operations;
    sum.begin = first ? s.partition.begin : std::min(sum.begin, s.partition.begin);
    sum.end = first ? s.partition.end : std::max(sum.end, s.partition.end);
    first = false;
  }
  return out;
}

ForeignSweep::ForeignSweep(const std::vector<Annotation>& steps, const std::vector<std::string>& step_labels,
                           const AllocationCalls& allocations, PieceSink sink)
    : steps_(steps),
      labels_(step_labels),
      allocations_(allocations),
      sink_(std::move(sink)),
      savings_([this](int window, const Saving& s) {
        save(window, s);
        save(kWhole, s);
      }) {}

void ForeignSweep::of_process(std::int64_t process, const HostCalls& calls) {
  process_ = process;
  calls_ = &calls;
  blocked_ = BlockedHost(&calls);
}

void ForeignSweep::save(int i, const Saving& s) { add_saving(saved_, window(i).savings, i, s); }

void ForeignSweep::open_window(Nanos t, int step) {
  window().partition.end = t;
  ForeignStep s;
  s.partition.begin = t;
  s.partition.step = static_cast<int>(out_.steps.size());
  if (step >= 0) {
    s.label = labels_[static_cast<std::size_t>(step)];
    s.cut = steps_[static_cast<std::size_t>(step)].end == kNoTime;
    out_.has_steps = true;
  }
  out_.steps.push_back(std::move(s));
  current_ = static_cast<int>(out_.steps.size()) - 1;
  step_ = step;
}

void ForeignSweep::add(const DeviceOp& op) {
  count(op);
  looks_ += 4;
  if (op.end <= op.begin) {
    ++window().operations;
    return;
  }
  if (!started_) {
    started_ = true;
    now_ = op.begin;
    out_.before.partition.begin = out_.whole.partition.begin = op.begin;
    if (steps_.empty()) open_window(op.begin, -1);
  }
  if (has_gap_ && gap_.end < op.begin) resolve_gap();
  advance(op.begin);
  if (op.step > step_) enter_step(op);
  ended_by(op);
  ++window().operations;
  const unsigned bit = bit_of(op);
  ++running_[bit_index(bit)];
  endings_.push({op.end, op.begin, passed_, op.name, op.shape, op.unit, op.pass, op.collective, bit});
  if (bit & kRunsModel) savings_.model(op.begin, op.on_host ? kNoTime : op.launch_begin);
  if (bit == kRunsCompute && op.unit != fsdp::kNoUnit) unit_row(op).compute_ns += op.end - op.begin;
  if (bit & kRunsAnyCommunication) begin_communication(op);
}

// Of the operations that begin where the gap ends, the one launched first explains it.
void ForeignSweep::ended_by(const DeviceOp& op) {
  if (op.launch_begin == kNoTime) return;
  const bool tracks = calls_ != nullptr && !calls_->unmatched.empty();
  if (has_gap_ && (gap_.launch_begin == kNoTime || op.launch_begin < gap_.launch_begin)) {
    gap_.launch_begin = op.launch_begin;
    gap_.thread = op.thread;
    const auto before = tracks ? launched_.find(op.thread) : launched_.end();
    gap_.launched_before = before == launched_.end() ? kNoTime : before->second;
  }
  if (!tracks) return;
  const auto [it, fresh] = launched_.try_emplace(op.thread, op.launch_begin);
  it->second = std::max(it->second, op.launch_begin);
}

void ForeignSweep::enter_step(const DeviceOp& op) {
  steps_without_work(op.step, op.begin);
  open_window(op.begin, op.step);
}

// Steps between the last one that launched work and `until`: those that lie in the gap before t get what is theirs.
void ForeignSweep::steps_without_work(int until, Nanos t) {
  if (!has_gap_ || gap_.end != t || gap_.windows.back().second != current_) return;
  for (int s = step_ + 1; s < until && looks_ > 0; ++s, --looks_) {
    const Annotation& a = steps_[static_cast<std::size_t>(s)];
    const Nanos begin = std::max(a.begin, gap_.windows.back().first);
    if (a.process != process_ || a.end == kNoTime || begin >= std::min(a.end, t)) continue;
    open_window(begin, s);
    gap_.windows.emplace_back(begin, current_);
  }
}

void ForeignSweep::steps_at_the_end() {
  Nanos from = now_;
  for (int s = step_ + 1; s < static_cast<int>(steps_.size()) && looks_ > 0; ++s, --looks_) {
    const Annotation& a = steps_[static_cast<std::size_t>(s)];
    const Nanos begin = std::max(a.begin, from);
    if (a.process != process_ || a.end == kNoTime || begin >= a.end) continue;
    const Nanos end = window().partition.end;
    open_window(begin, s);
    if (out_.steps.size() > 1) out_.steps[out_.steps.size() - 2].partition.end = end;
    if (out_.steps.size() == 1) out_.before.partition.end = end;
    window().partition.end = from = a.end;
    window().idle_unknown = a.end - begin;
    record(current_, PartitionClass::kIdle, a.end - begin, nullptr);
  }
}

// A step that launched nothing counts unless it is next to nothing: the range that a profiler opens as it ends.
void ForeignSweep::leave_out_short_ones() {
  Nanos others = 0;
  for (const ForeignStep& s : out_.steps) others += s.operations > 0 ? s.length() : 0;
  for (ForeignStep& s : out_.steps) s.left_out = s.operations == 0 && s.length() < others / 100;
}

void ForeignSweep::begin_communication(const DeviceOp& op) {
  collectives_.push_back(op);
  ++in_flight_;
  UnitMetrics& m = unit_row(op);
  const bool counts = op.range < 0 || ranges_.insert(op.range).second;
  out_.counts.communication += counts && op.range >= 0;
  if (op.collective == SpanKind::kAllGather) {
    m.all_gathers += counts, m.all_gather_bytes += op.bytes, m.all_gather_ns += op.end - op.begin;
    blocked_.gather(op);
  } else if (op.collective == SpanKind::kReduceScatter) {
    m.reduce_scatters += counts, m.reduce_scatter_bytes += op.bytes, m.reduce_scatter_ns += op.end - op.begin;
  } else {
    m.other_collectives += counts;
  }
}

UnitMetrics& ForeignSweep::unit_row(fsdp::UnitId unit, fsdp::Pass pass) {
  UnitMetrics& m = units_[{unit, pass}];
  m.unit = unit;
  m.pass = pass;
  return m;
}

void ForeignSweep::count(const DeviceOp& op) {
  ForeignCounts& c = out_.counts;
  if (op.kind == OpKind::kKernel) {
    if (c.kernels++ == 0) out_.kernels_begin = op.begin, out_.kernels_end = op.end;
    out_.kernels_end = std::max(out_.kernels_end, op.end);
  }
  StreamUse& use = streams_[op.stream];
  use.communication += op.cls == OpClass::kCommunication;
  use.compute += op.cls == OpClass::kCompute || op.cls == OpClass::kOptimizer;
  use.copies += op.cls == OpClass::kCopy;
  use.all_gathers += op.cls == OpClass::kCommunication && op.collective == SpanKind::kAllGather;
  use.reduce_scatters += op.cls == OpClass::kCommunication && op.collective == SpanKind::kReduceScatter;
  c.memcpys += op.kind == OpKind::kMemcpy;
  c.memsets += op.kind == OpKind::kMemset;
  c.communication += op.cls == OpClass::kCommunication && op.range < 0;
  c.copy_engine += op.cls == OpClass::kCommunication && op.range >= 0;
  c.optimizer += op.cls == OpClass::kOptimizer;
  c.annotated_copies += op.annotated_copy;
  c.emulated += op.emulated;
  c.without_launch += op.launch_begin == kNoTime;
  c.before_launch += op.launch_begin != kNoTime && op.begin < op.launch_begin;
}

// Moves time forward to t: what ends on the way ends.
void ForeignSweep::advance(Nanos t) {
  while (now_ < t) {
    const Nanos next = endings_.empty() ? t : std::min(t, endings_.top().end);
    if (next > now_) segment(now_, next);
    now_ = std::max(now_, next);
    while (!endings_.empty() && endings_.top().end <= now_) end_one();
  }
}

void ForeignSweep::end_one() {
  const Ending& e = endings_.top();
  --running_[bit_index(e.bit)];
  const Nanos ns = e.end - e.begin, hidden = passed_.model - e.since.model;
  RowOverlap& o = out_.row_overlap;
  if (e.bit == kRunsCompute) kernel_times_.add(e.name, e.shape, ns, passed_.collective - e.since.collective);
  if (e.bit == kRunsCommunication) {
    o.communication += ns;
    o.communication_communication += passed_.nccls - e.since.nccls;
    o.communication_compute += passed_.kernel - e.since.kernel;
  } else if (e.bit & (kRunsKernels | kRunsOtherCommunication)) {
    o.compute += ns;
    o.compute_communication += passed_.nccl - e.since.nccl;
    o.compute_compute += passed_.kernels - e.since.kernels;
  }
  if (e.bit & kRunsAnyCommunication) {
    --in_flight_;
    if (hidden > 0) unit_row(e.unit, e.pass).hidden_ns += hidden;
    if (e.collective == SpanKind::kAllGather || e.collective == SpanKind::kReduceScatter) {
      KindTimes& k = e.collective == SpanKind::kAllGather ? out_.all_gather : out_.reduce_scatter;
      ++k.operations;
      k.ns += ns;
      k.hidden_ns += hidden;
    }
  }
  endings_.pop();
}

void ForeignSweep::pass(unsigned set, Nanos ns) {
  int kernels = 0, collectives = 0;
  for (const unsigned bit : {kRunsCompute, kRunsOptimizer, kRunsCopyKernel, kRunsOtherCommunication})
    kernels += running_[bit_index(bit)];
  for (const unsigned bit : {kRunsCommunication, kRunsOtherCommunication, kRunsCopyEngine})
    collectives += running_[bit_index(bit)];
  const int nccl = running_[bit_index(kRunsCommunication)];
  passed_.kernel += kernels > 0 ? ns : 0;
  passed_.kernels += kernels > 1 ? ns : 0;
  passed_.nccl += nccl > 0 ? ns : 0;
  passed_.nccls += nccl > 1 ? ns : 0;
  passed_.collective += collectives > 0 ? ns : 0;
  passed_.model += (set & kRunsModel) != 0 ? ns : 0;
  out_.concurrent_collectives |= collectives > 1;
}

// Of the collectives in flight the one that began first; ties as operations are ordered.
const DeviceOp& ForeignSweep::first_in_flight() {
  if (collectives_.size() > 2 * in_flight_ + 64) {
    std::erase_if(collectives_, [&](const DeviceOp& c) { return c.end <= now_; });
  }
  while (collectives_.front().end <= now_) collectives_.pop_front();
  return collectives_.front();
}

void ForeignSweep::segment(Nanos begin, Nanos end) {
  unsigned set = 0;
  for (unsigned i = 0; i < running_.size(); ++i) set |= running_[i] > 0 ? 1u << i : 0;
  if (set == 0) {
    gap_ = {begin, end, {{begin, current_}}};
    has_gap_ = true;
    return;
  }
  const Nanos ns = end - begin;
  pass(set, ns);
  for (ForeignStep* s : {&window(), &out_.whole}) {
    if (set & kRunsAnyCommunication) {
      s->partition.communication += ns;
      if (set & kRunsModel) s->partition.communication_hidden += ns;
    }
  }
  out_.whole.running.add(set, ns);
  if (current_ == kBefore) out_.before.running.add(set, ns);
  const DeviceOp* owner = nullptr;
  PartitionClass cls = PartitionClass::kCopy;
  if (set & kRunsOptimizer) {
    cls = PartitionClass::kOptimizer;
  } else if (set & kRunsCompute) {
    cls = set & kRunsAnyCommunication ? PartitionClass::kOverlapped : PartitionClass::kCompute;
  } else if (set & kRunsAnyCommunication) {
    owner = &first_in_flight();
    cls = exposed_class(*owner);
    unit_row(*owner).exposed_ns += ns;
    streams_[owner->stream].exposed += ns;
    savings_.exposed(*owner, current_, begin, end);
    if (owner->collective == SpanKind::kAllGather)
      blocked_.charge(owner->thread, owner->launch_begin, begin, end, true);
  }
  record(current_, cls, ns, owner);
  record(kWhole, cls, ns, owner);
  piece(cls, begin, end, owner);
}

void ForeignSweep::record(int i, PartitionClass cls, Nanos ns, const DeviceOp* owner) {
  StepPartition& p = window(i).partition;
  p.classes[static_cast<std::size_t>(cls)] += ns;
  PartitionDetail d{cls, fsdp::kNoUnit, fsdp::Pass::kNone, SpanKind::kCompute, ns};
  if (owner != nullptr) d.unit = owner->unit, d.pass = owner->pass, d.collective = owner->collective;
  add_detail(details_, p.details, i, d);
}

void ForeignSweep::piece(PartitionClass cls, Nanos begin, Nanos end, const DeviceOp* owner) {
  if (begin >= end) return;
  stretch(cls, begin, end, owner);
  if (sink_) sink_(cls, begin, end, owner);
}

void ForeignSweep::stretch(PartitionClass cls, Nanos begin, Nanos end, const DeviceOp* owner) {
  if (cls == PartitionClass::kCompute || cls == PartitionClass::kOverlapped || cls == PartitionClass::kOptimizer) {
    close_stretch();
    return;
  }
  CriticalStretch& s = open_stretch_;
  if (s.end == s.begin) {
    s.begin = begin;
    s.step = window().label;
  }
  s.end = end;
  s.classes[static_cast<std::size_t>(cls)] += end - begin;
  if (owner != nullptr && end - begin > charged_most_) {
    charged_most_ = end - begin;
    s.unit = owner->unit;
    s.collective = owner->collective;
  }
}

void ForeignSweep::close_stretch() {
  CriticalStretch& s = open_stretch_;
  if (s.end - s.begin > out_.stretch.end - out_.stretch.begin) {
    const auto largest = std::max_element(s.classes.begin(), s.classes.end());
    s.largest = static_cast<PartitionClass>(largest - s.classes.begin());
    out_.stretch = s;
  }
  s = {};
  charged_most_ = 0;
}

// Calls f(window, begin, end) for the windows that [begin, end) of the gap lies in.
template <class F>
void ForeignSweep::in_windows(const Gap& gap, Nanos begin, Nanos end, F f) {
  for (std::size_t i = 0; i < gap.windows.size(); ++i) {
    const Nanos from = std::max(begin, gap.windows[i].first);
    const Nanos to = i + 1 < gap.windows.size() ? std::min(end, gap.windows[i + 1].first) : end;
    if (from < to) f(gap.windows[i].second, from, to);
  }
}

void ForeignSweep::part_of_gap(const Gap& gap, Nanos begin, Nanos end, PartitionClass cls, Nanos ForeignStep::*detail) {
  const auto calls = allocations_.find(gap.thread);
  in_windows(gap, begin, end, [&](int w, Nanos from, Nanos to) {
    const Nanos waiting = calls == allocations_.end() ? 0 : calls->second.length_within(from, to);
    for (const int i : {w, kWhole}) {
      record(i, PartitionClass::kMemoryWait, waiting, nullptr);
      record(i, cls, to - from - waiting, nullptr);
      window(i).*detail += to - from - waiting;
    }
    Nanos at = from;
    if (waiting > 0) {
      const IntervalSet inside = calls->second.clipped(from, to);
      for (const Interval& call : inside.intervals()) {
        piece(cls, at, call.begin, nullptr);
        piece(PartitionClass::kMemoryWait, call.begin, call.end, nullptr);
        at = call.end;
      }
    }
    piece(cls, at, to, nullptr);
  });
}

// Launch calls between those of the operations around the gap whose kernels the trace does not have.
void ForeignSweep::unrecorded_in(const Gap& gap) {
  const std::vector<Nanos>* calls = calls_ == nullptr ? nullptr : calls_->unmatched_on(gap.thread);
  if (calls == nullptr || gap.launch_begin == kNoTime) return;
  const auto first = std::upper_bound(calls->begin(), calls->end(), gap.launched_before);
  if (first == calls->end() || *first >= gap.launch_begin) return;
  in_windows(gap, std::max(gap.begin, *first), gap.end, [&](int w, Nanos from, Nanos to) {
    window(w).unrecorded += to - from;
    out_.whole.unrecorded += to - from;
  });
}

// Splits the gap that has ended by why its last operation came so late.
void ForeignSweep::resolve_gap() {
  has_gap_ = false;
  const Gap gap = std::move(gap_);
  const bool known = gap.launch_begin != kNoTime;
  const Nanos issued = !known ? gap.begin : std::clamp(gap.launch_begin, gap.begin, gap.end);
  if (known && gap.launch_begin > gap.begin) {
    blocked_.charge(gap.thread, kNoTime, gap.begin, issued, false);
    part_of_gap(gap, gap.begin, issued, PartitionClass::kHost, &ForeignStep::host_not_issued);
    part_of_gap(gap, issued, gap.end, PartitionClass::kHost, &ForeignStep::host_launch);
  } else {
    part_of_gap(gap, gap.begin, gap.end, PartitionClass::kIdle,
                known ? &ForeignStep::idle_dependency : &ForeignStep::idle_unknown);
  }
  unrecorded_in(gap);
}

ForeignPartition ForeignSweep::finish() {
  if (has_gap_) resolve_gap();
  while (!endings_.empty()) advance(endings_.top().end);
  close_stretch();
  savings_.finish();
  out_.slowdown = kernel_times_.slowdown();
  window().partition.end = out_.whole.partition.end = now_;
  if (current_ < 0) out_.before.partition.end = now_;
  out_.whole.operations = out_.before.operations;
  for (const ForeignStep& s : out_.steps) out_.whole.operations += s.operations;
  if (started_) steps_at_the_end();
  leave_out_short_ones();
  out_.host_syncs = blocked_.finish();
  for (const auto& [key, m] : units_) out_.units.push_back(m);
  for (auto& [stream, use] : streams_) {
    use.stream = stream;
    out_.streams.push_back(use);
  }
  for (ForeignStep* s : {&out_.before, &out_.whole})
    std::erase_if(s->partition.details, [](const auto& d) { return d.ns == 0; });
  for (ForeignStep& s : out_.steps) std::erase_if(s.partition.details, [](const auto& d) { return d.ns == 0; });
  return std::move(out_);
}

}  // namespace harness
