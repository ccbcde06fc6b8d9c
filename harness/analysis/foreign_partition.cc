#include "harness/analysis/foreign_partition.h"

#include <algorithm>
#include <tuple>

namespace harness {

using fsdp::Nanos;
using fsdp::SpanKind;

namespace {

int bit_index(unsigned bit) { return __builtin_ctz(bit); }

unsigned bit_of(const DeviceOp& op) {
  if (op.cls == OpClass::kCommunication) return kRunsCommunication;
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

}  // namespace

void ForeignStep::add(const ForeignStep& o) {
  for (std::size_t i = 0; i < partition.classes.size(); ++i) partition.classes[i] += o.partition.classes[i];
  partition.communication += o.partition.communication;
  partition.communication_hidden += o.partition.communication_hidden;
  for (const PartitionDetail& d : o.partition.details) {
    auto it = std::find_if(partition.details.begin(), partition.details.end(), [&](const PartitionDetail& x) {
      return x.cls == d.cls && x.unit == d.unit && x.pass == d.pass && x.collective == d.collective;
    });
    if (it == partition.details.end()) {
      partition.details.push_back(d);
    } else {
      it->ns += d.ns;
    }
  }
  running.add(o.running);
  for (const Saving& s : o.savings) add_saving(savings, s);
  host_not_issued += o.host_not_issued;
  host_launch += o.host_launch;
  idle_dependency += o.idle_dependency;
  idle_unknown += o.idle_unknown;
  operations += o.operations;
}

ForeignStep ForeignPartition::sum_of_steps(bool with_cut) const {
  ForeignStep out;
  bool first = true;
  for (const ForeignStep& s : steps) {
    if (s.cut && !with_cut) continue;
    out.add(s);
    out.partition.begin = first ? s.partition.begin : std::min(out.partition.begin, s.partition.begin);
    out.partition.end = std::max(out.partition.end, s.partition.end);
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
        add_saving(window < 0 ? out_.before.savings : out_.steps[static_cast<std::size_t>(window)].savings, s);
        add_saving(out_.whole.savings, s);
      }) {}

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
  if (op.step > step_) open_window(op.begin, op.step);
  if (has_gap_ && op.launch_begin != kNoTime && (gap_.launch_begin == kNoTime || op.launch_begin < gap_.launch_begin)) {
    gap_.launch_begin = op.launch_begin;
    gap_.thread = op.thread;
  }
  ++window().operations;
  const unsigned bit = bit_of(op);
  ++running_[bit_index(bit)];
  endings_.push({op.end, op.begin, passed_, op.name, op.shape, op.collective, bit});
  if (bit & kRunsModel) savings_.model(op.begin, op.launch_begin);
  if (bit == kRunsCompute && op.unit != fsdp::kNoUnit) unit_row(op).compute_ns += op.end - op.begin;
  if (bit == kRunsCommunication) {
    collectives_.push_back(op);
    UnitMetrics& m = unit_row(op);
    if (op.collective == SpanKind::kAllGather) {
      ++m.all_gathers, m.all_gather_bytes += op.bytes, m.all_gather_ns += op.end - op.begin;
    } else if (op.collective == SpanKind::kReduceScatter) {
      ++m.reduce_scatters, m.reduce_scatter_bytes += op.bytes, m.reduce_scatter_ns += op.end - op.begin;
    } else {
      ++m.other_collectives;
    }
  }
}

UnitMetrics& ForeignSweep::unit_row(const DeviceOp& op) {
  UnitMetrics& m = units_[{op.unit, op.pass}];
  m.unit = op.unit;
  m.pass = op.pass;
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
  c.communication += op.cls == OpClass::kCommunication;
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
  if (e.bit == kRunsCommunication) std::erase_if(collectives_, [&](const DeviceOp& c) { return c.end <= now_; });
  const Nanos ns = e.end - e.begin, beside = passed_.collective - e.since.collective;
  RowOverlap& o = out_.row_overlap;
  if (e.bit == kRunsCompute) kernel_times_.add(e.name, e.shape, ns, beside);
  if (e.bit == kRunsCommunication) {
    o.communication += ns;
    o.communication_communication += passed_.collectives - e.since.collectives;
    o.communication_compute += passed_.kernel - e.since.kernel;
    if (e.collective == SpanKind::kAllGather || e.collective == SpanKind::kReduceScatter) {
      KindTimes& k = e.collective == SpanKind::kAllGather ? out_.all_gather : out_.reduce_scatter;
      ++k.operations;
      k.ns += ns;
      k.hidden_ns += passed_.model - e.since.model;
    }
  } else if (e.bit & kRunsKernels) {
    o.compute += ns;
    o.compute_communication += beside;
    o.compute_compute += passed_.kernels - e.since.kernels;
  }
  endings_.pop();
}

void ForeignSweep::pass(unsigned set, Nanos ns) {
  int kernels = 0;
  for (const unsigned bit : {kRunsCompute, kRunsOptimizer, kRunsCopyKernel}) kernels += running_[bit_index(bit)];
  const int collectives = running_[bit_index(kRunsCommunication)];
  passed_.kernel += kernels > 0 ? ns : 0;
  passed_.kernels += kernels > 1 ? ns : 0;
  passed_.collective += collectives > 0 ? ns : 0;
  passed_.collectives += collectives > 1 ? ns : 0;
  passed_.model += (set & kRunsModel) != 0 ? ns : 0;
  out_.concurrent_collectives |= collectives > 1;
}

void ForeignSweep::segment(Nanos begin, Nanos end) {
  unsigned set = 0;
  for (unsigned i = 0; i < running_.size(); ++i) set |= running_[i] > 0 ? 1u << i : 0;
  if (set == 0) {
    gap_ = {begin, end, current_, kNoTime, kNoThread};
    has_gap_ = true;
    return;
  }
  const Nanos ns = end - begin;
  pass(set, ns);
  ForeignStep& w = window();
  for (ForeignStep* s : {&w, &out_.whole}) {
    s->running.by_set[set] += ns;
    if (set & kRunsCommunication) {
      s->partition.communication += ns;
      if (set & kRunsModel) s->partition.communication_hidden += ns;
    }
  }
  for (const DeviceOp& c : collectives_) unit_row(c).hidden_ns += set & kRunsModel ? ns : 0;
  const DeviceOp* owner = nullptr;
  PartitionClass cls = PartitionClass::kCopy;
  if (set & kRunsOptimizer) {
    cls = PartitionClass::kOptimizer;
  } else if (set & kRunsCompute) {
    cls = set & kRunsCommunication ? PartitionClass::kOverlapped : PartitionClass::kCompute;
  } else if (set & kRunsCommunication) {
    owner = &*std::min_element(collectives_.begin(), collectives_.end(), [](const DeviceOp& a, const DeviceOp& b) {
      return std::tuple(a.begin, a.stream, a.correlation) < std::tuple(b.begin, b.stream, b.correlation);
    });
    cls = exposed_class(*owner);
    unit_row(*owner).exposed_ns += ns;
    streams_[owner->stream].exposed += ns;
    savings_.exposed(*owner, current_, begin, end);
  }
  record(w, cls, ns, owner);
  record(out_.whole, cls, ns, owner);
  piece(cls, begin, end, owner);
}

void ForeignSweep::record(ForeignStep& step, PartitionClass cls, Nanos ns, const DeviceOp* owner) {
  step.partition.classes[static_cast<std::size_t>(cls)] += ns;
  const fsdp::UnitId unit = owner != nullptr ? owner->unit : fsdp::kNoUnit;
  const fsdp::Pass pass = owner != nullptr ? owner->pass : fsdp::Pass::kNone;
  const SpanKind kind = owner != nullptr ? owner->collective : SpanKind::kCompute;
  for (PartitionDetail& d : step.partition.details) {
    if (d.cls == cls && d.unit == unit && d.pass == pass && d.collective == kind) {
      d.ns += ns;
      return;
    }
  }
  step.partition.details.push_back({cls, unit, pass, kind, ns});
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

// Splits the gap that has ended by why its last operation came so late.
void ForeignSweep::resolve_gap() {
  has_gap_ = false;
  ForeignStep& w = gap_.window < 0 ? out_.before : out_.steps[static_cast<std::size_t>(gap_.window)];
  const auto calls = allocations_.find(gap_.thread);
  const bool known = gap_.launch_begin != kNoTime;
  const Nanos issued = !known ? gap_.begin : std::clamp(gap_.launch_begin, gap_.begin, gap_.end);
  const bool late = known && gap_.launch_begin > gap_.begin;
  auto part = [&](Nanos begin, Nanos end, PartitionClass cls, Nanos ForeignStep::*detail) {
    const Nanos waiting = calls == allocations_.end() ? 0 : calls->second.length_within(begin, end);
    for (ForeignStep* s : {&w, &out_.whole}) {
      record(*s, PartitionClass::kMemoryWait, waiting, nullptr);
      record(*s, cls, end - begin - waiting, nullptr);
      s->*detail += end - begin - waiting;
    }
    if (waiting == 0) return piece(cls, begin, end, nullptr);
    Nanos at = begin;
    const IntervalSet inside = calls->second.clipped(begin, end);
    for (const Interval& call : inside.intervals()) {
      piece(cls, at, call.begin, nullptr);
      piece(PartitionClass::kMemoryWait, call.begin, call.end, nullptr);
      at = call.end;
    }
    piece(cls, at, end, nullptr);
  };
  if (late) {
    part(gap_.begin, issued, PartitionClass::kHost, &ForeignStep::host_not_issued);
    part(issued, gap_.end, PartitionClass::kHost, &ForeignStep::host_launch);
  } else {
    part(gap_.begin, gap_.end, PartitionClass::kIdle,
         known ? &ForeignStep::idle_dependency : &ForeignStep::idle_unknown);
  }
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
