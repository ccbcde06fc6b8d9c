#include "harness/trace/foreign_trace.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "harness/trace/json_text.h"
#include "harness/trace/run_sorter.h"

namespace harness {

using fsdp::Nanos;

namespace {

constexpr std::size_t kMostNames = 1 << 16;
// A kernel cannot go on for this long after the next one of its stream began; shorter overlaps are legal (programmatic
// dependent launch, branches of a graph).
constexpr Nanos kLongOverlap = 100'000'000;

struct LaunchCall {
  std::int64_t process;
  std::uint64_t correlation;
  Nanos begin, end;
  std::uint32_t thread;
};

struct ByCorrelation {
  bool operator()(const DeviceOp& a, const DeviceOp& b) const {
    return std::tie(a.row, a.correlation, a.order) < std::tie(b.row, b.correlation, b.order);
  }
};
struct ByKey {
  bool operator()(const LaunchCall& a, const LaunchCall& b) const {
    return std::tie(a.process, a.correlation, a.begin) < std::tie(b.process, b.correlation, b.begin);
  }
};
struct ByBegin {
  bool operator()(const DeviceOp& a, const DeviceOp& b) const {
    return std::tie(a.row, a.begin, a.stream, a.correlation, a.order) <
           std::tie(b.row, b.begin, b.stream, b.correlation, b.order);
  }
};

}  // namespace

std::string_view name_of(TraceSource s) {
  return s == TraceSource::kKineto ? "kineto" : (s == TraceSource::kNsys ? "nsys" : "shardscope");
}

struct ForeignTrace::Sorters {
  explicit Sorters(std::size_t budget) : unjoined(budget / 3), launches(budget / 3), ops(budget / 3) {}
  RunSorter<DeviceOp, ByCorrelation> unjoined;
  RunSorter<LaunchCall, ByKey> launches;
  RunSorter<DeviceOp, ByBegin> ops;
};

ForeignTrace::ForeignTrace(std::size_t memory_budget) : sorters_(std::make_unique<Sorters>(memory_budget)) {}
ForeignTrace::~ForeignTrace() = default;
ForeignTrace::ForeignTrace(ForeignTrace&&) noexcept = default;
ForeignTrace& ForeignTrace::operator=(ForeignTrace&&) noexcept = default;

std::uint32_t ForeignTrace::name(std::string_view text) {
  thread_local std::string key;
  key.assign(text);
  if (const auto it = name_ids_.find(key); it != name_ids_.end()) return it->second;
  if (names_.size() >= kMostNames) {
    // One name for the rest, one for the rest of communication.
    key = is_communication_name(text) ? "nccl (other names)" : "(other names)";
    if (const auto it = name_ids_.find(key); it != name_ids_.end()) return it->second;
  }
  const auto id = static_cast<std::uint32_t>(names_.size());
  names_.push_back(printable(key));
  name_classes_.push_back({is_communication_name(key), is_emulated_name(key), collective_kind(key)});
  name_ids_.emplace(key, id);
  return id;
}

std::uint32_t ForeignTrace::thread(std::int64_t process, std::int64_t id) {
  const std::pair key(process, id);
  if (last_thread_.first == key && last_thread_.second != kNoThread) return last_thread_.second;
  const auto [it, fresh] = thread_ids_.try_emplace(key, static_cast<std::uint32_t>(thread_ids_.size()));
  last_thread_ = {key, it->second};
  return it->second;
}

std::uint16_t ForeignTrace::row(std::int64_t process, std::int32_t device) {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].process == process && rows_[i].device == device) return static_cast<std::uint16_t>(i);
  }
  // A file with more devices than that is damaged: they share the last row.
  if (rows_.size() < 4096) rows_.push_back({process, device});
  return static_cast<std::uint16_t>(rows_.size() - 1);
}

void ForeignTrace::add_op(const DeviceOp& op) {
  DeviceOp o = op;
  o.order = order_++;
  latest_ = std::max(latest_, o.end);
  sorters_->unjoined.push(o);
}

void ForeignTrace::add_launch(std::int64_t process, std::uint64_t correlation, std::uint32_t thread, Nanos begin,
                              Nanos end) {
  sorters_->launches.push({process, correlation, begin, end, thread});
}

void ForeignTrace::add_allocation(std::uint32_t thread, Nanos begin, Nanos end) {
  allocation_calls_[thread].push_back({begin, end});
}

void ForeignTrace::add_annotation(std::string_view text, std::int64_t process, std::uint32_t thread, Nanos begin,
                                  Nanos end, bool collective_domain) {
  const AnnotationMeaning m = meaning_of(text);
  if (m.kind == AnnotationKind::kOther) return;
  Annotation a;
  a.begin = begin, a.end = end, a.process = process, a.thread = thread;
  a.kind = m.kind, a.phase = m.phase, a.pass = m.pass, a.collective = m.collective;
  a.library_range = collective_domain && m.kind == AnnotationKind::kCollective;
  if (m.has_unit) {
    const auto [it, fresh] = unit_ids_.try_emplace(printable(m.unit), static_cast<fsdp::UnitId>(unit_names_.size()));
    if (fresh) unit_names_.push_back(it->first);
    a.unit = it->second;
  }
  if (m.kind == AnnotationKind::kStep) {
    a.name = static_cast<std::uint32_t>(annotation_names_.size());
    annotation_names_.push_back(printable(text));
  }
  if (m.kind == AnnotationKind::kModule) {
    if (module_ids_.size() >= kMostNames) return;
    const auto [it, fresh] =
        module_ids_.try_emplace(printable(m.module), static_cast<std::uint32_t>(annotation_names_.size()));
    if (fresh) annotation_names_.push_back(it->first);
    a.name = it->second;
  }
  facts.collective_annotations += m.kind == AnnotationKind::kCollective;
  facts.optimizer_annotations += m.kind == AnnotationKind::kOptimizer;
  facts.fsdp_annotations +=
      m.kind == AnnotationKind::kFsdp1 || m.kind == AnnotationKind::kFsdp2 || m.kind == AnnotationKind::kOwn;
  if (end != kNoTime) latest_ = std::max(latest_, end);
  annotations_.add(a);
}

void ForeignTrace::finish() {
  annotations_.index(latest_, annotation_names_, unit_names_);
  for (const Annotation& s : annotations_.steps()) step_labels_.push_back(annotation_names_[s.name]);
  for (auto& [thread, calls] : allocation_calls_) allocations_.emplace(thread, IntervalSet(std::move(calls)));
  allocation_calls_.clear();
  join();
  find_impossible();
}

// Operations and launch calls meet by (process, correlation): both are read in that order, once.
void ForeignTrace::join() {
  std::vector<std::uint16_t> by_process(rows_.size());  // rows in the order of their processes
  for (std::size_t i = 0; i < rows_.size(); ++i) by_process[i] = static_cast<std::uint16_t>(i);
  LaunchCall call{};
  // Rows of one process share its launch calls: they are read once a row.
  std::int32_t current_row = -1;
  std::optional<RunSorter<LaunchCall, ByKey>::Cursor> calls;
  bool have = false;
  auto before = [](const LaunchCall& c, std::int64_t process, std::uint64_t correlation) {
    return std::tie(c.process, c.correlation) < std::tie(process, correlation);
  };
  sorters_->unjoined.for_each([&](DeviceOp op) {
    if (op.row != current_row) {
      current_row = op.row;
      calls.emplace(sorters_->launches.cursor());
      have = calls->next(call);
    }
    const std::int64_t process = rows_[op.row].process;
    while (have && before(call, process, op.correlation)) have = calls->next(call);
    // Of several calls with one id (runtime and driver) the first counts: the cursor stays on it.
    if (have && op.correlation != 0 && call.process == process && call.correlation == op.correlation) {
      op.launch_begin = call.begin;
      op.launch_end = call.end;
      op.thread = call.thread;
    }
    classify(op);
    sorters_->ops.push(op);
  });
  calls.reset();
  sorters_->unjoined.clear();
  sorters_->launches.clear();
}

void ForeignTrace::classify(DeviceOp& op) const {
  const NameClass& by_name = name_classes_[op.name];
  const bool launched = op.launch_begin != kNoTime;
  const Attribution at = launched ? attribution_at(annotations_, op.thread, op.launch_begin) : Attribution{};
  const std::vector<Annotation>& steps = annotations_.steps();
  if (!steps.empty() && launched) {
    op.step = annotations_.step_at(op.launch_begin, rows_[op.row].process);
    op.before_first_step = op.launch_begin < steps.front().begin;
  }
  op.unit = at.unit;
  op.pass = at.pass;
  if (op.kind == OpKind::kKernel ? by_name.communication : at.library_range) {
    op.cls = OpClass::kCommunication;
    op.emulated = by_name.emulated;
    if (op.collective == fsdp::SpanKind::kOtherCollective) op.collective = by_name.collective;
    if (op.collective == fsdp::SpanKind::kOtherCollective) op.collective = at.collective;
  } else if (op.kind != OpKind::kKernel) {
    op.cls = OpClass::kCopy;
  } else if (at.optimizer) {
    op.cls = OpClass::kOptimizer;
  } else if (at.fsdp_copy) {
    op.cls = OpClass::kCopy;
    op.annotated_copy = true;
  } else {
    op.cls = OpClass::kCompute;
    if (op.unit == fsdp::kNoUnit && launched) {
      const ComputeUnits::Owner owner = annotations_.compute_units().at(op.thread, op.launch_begin);
      op.unit = owner.unit;
      op.pass = owner.pass;
    }
  }
}

// On one stream a record that goes on for long after the next one began cannot be true.
void ForeignTrace::find_impossible() {
  std::map<std::pair<std::uint16_t, std::int32_t>, std::vector<std::pair<Nanos, std::uint64_t>>> running;
  std::set<std::uint64_t> found;
  sorters_->ops.for_each([&](const DeviceOp& op) {
    if (running.empty() && op.end - op.begin <= kLongOverlap) return;
    auto& longs = running[{op.row, op.stream}];
    for (const auto& [end, order] : longs) {
      if (op.begin < end - kLongOverlap) found.insert(order);
    }
    std::erase_if(longs, [&](const auto& x) { return x.first - kLongOverlap <= op.begin || found.contains(x.second); });
    if (op.end - op.begin > kLongOverlap) longs.emplace_back(op.end, op.order);
  });
  impossible_.assign(found.begin(), found.end());
  facts.bad.impossible_duration += static_cast<std::int64_t>(impossible_.size());
}

std::size_t ForeignTrace::operations() const { return sorters_->ops.size() - impossible_.size(); }

void ForeignTrace::for_each_op(const std::function<void(const DeviceOp&)>& f) {
  sorters_->ops.for_each([&](const DeviceOp& op) {
    if (!impossible_.empty() && std::binary_search(impossible_.begin(), impossible_.end(), op.order)) return;
    f(op);
  });
}

}  // namespace harness
