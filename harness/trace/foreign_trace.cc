#include "harness/trace/foreign_trace.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "harness/trace/foreign_sorters.h"
#include "harness/trace/json_text.h"

namespace harness {

using fsdp::Nanos;

namespace {

constexpr std::size_t kMostNames = 1 << 16;
constexpr std::size_t kLongestName = 4096, kLongestLabel = 1024;
// So that no file takes more than about 1 GB: annotations and calls beyond are not kept, and that is said.
constexpr std::size_t kMostAnnotations = 4 << 20, kMostCalls = 8 << 20;
// A kernel cannot go on for this long after the next one of its stream began; shorter overlaps are legal (programmatic
// dependent launch, branches of a graph).
constexpr Nanos kLongOverlap = 100'000'000;
// Calls that take as long block, whatever they are called; synchronizations matter from the second on.
constexpr Nanos kLongCall = 1'000'000, kLongSynchronization = 10'000;

void add_to(UnknownEvents& u, Nanos ns, std::int64_t count) {
  u.count += count;
  u.ns = std::min(kLatestTime, u.ns + std::clamp(ns, Nanos{0}, kLatestTime));
}

}  // namespace

std::string_view name_of(TraceSource s) {
  return s == TraceSource::kKineto ? "kineto" : (s == TraceSource::kNsys ? "nsys" : "shardscope");
}

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
  names_.push_back(printable(std::string_view(key).substr(0, kLongestName)));
  const bool peers = key.find("PtoP") != std::string::npos || key.find("Peer") != std::string::npos;
  name_classes_.push_back({communication_name(key), is_emulated_name(key), peers, collective_kind(key)});
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
  if (last_row_ < rows_.size() && rows_[last_row_].process == process && rows_[last_row_].device == device) {
    return static_cast<std::uint16_t>(last_row_);
  }
  // A file with more devices than that is damaged: they share the last row.
  const bool full = rows_.size() >= 4096 && !row_ids_.contains({process, device});
  const auto last = static_cast<std::uint16_t>(std::max<std::size_t>(rows_.size(), 1) - 1);
  if (full) return last;
  const auto [it, fresh] = row_ids_.try_emplace({process, device}, static_cast<std::uint16_t>(rows_.size()));
  if (fresh) rows_.push_back({process, device});
  last_row_ = it->second;
  return it->second;
}

void ForeignTrace::add_op(const DeviceOp& op) {
  DeviceOp o = op;
  o.order = order_++;
  latest_ = std::max(latest_, o.end);
  sorters_->unjoined.push(o);
}

// There are few kinds of calls and very many calls.
ForeignTrace::CallKind ForeignTrace::call_kind(std::string_view call) {
  if (const auto it = call_kinds_.find(call); it != call_kinds_.end()) return it->second;
  const bool graph = is_graph_launch(call);
  const CallKind kind{is_allocation_call(call), is_synchronizing_call(call), graph || is_kernel_launch(call), graph};
  if (call_kinds_.size() < 4096) call_kinds_.emplace(call.substr(0, kLongestName), kind);
  return kind;
}

void ForeignTrace::add_call(std::string_view call, std::int64_t process, std::uint64_t correlation,
                            std::uint32_t thread, Nanos begin, Nanos end) {
  ProcessCalls& p = facts.processes[process];
  ++p.calls;
  const CallKind kind = call_kind(call);
  const Nanos length = end - begin;
  const bool blocks = length >= kLongCall || (length >= kLongSynchronization && kind.synchronizes);
  if (kind.allocates || blocks) {
    if (kept_calls_ == kMostCalls) {
      facts.partial = true;
      facts.notes.push_back("more than " + std::to_string(kMostCalls) +
                            " allocation and blocking calls: those that follow are not counted");
    }
    if (kept_calls_++ >= kMostCalls) return;
    if (kind.allocates) allocation_calls_[thread].push_back({begin, end});
    if (blocks) calls_.blocking[thread].push_back({begin, end, name(call)});
  }
  if (correlation == 0) return;
  p.launches += kind.kernel;
  sorters_->launches.push({process, correlation, begin, end, thread, kind.kernel, kind.graph});
}

void ForeignTrace::add_unknown(std::string_view what, bool device, Nanos ns, std::int64_t count) {
  constexpr std::size_t kMost = 64;
  const std::string text = printable(what.substr(0, 64));
  auto it = std::find_if(facts.unknown.begin(), facts.unknown.end(),
                         [&](const UnknownEvents& u) { return u.what == text && u.device == device; });
  if (it == facts.unknown.end()) {
    if (facts.unknown.size() >= kMost) return add_to(facts.unknown.back(), ns, count);
    const bool last = facts.unknown.size() + 1 == kMost;
    facts.unknown.push_back({last ? "(others)" : text, device || last});
    it = std::prev(facts.unknown.end());
  }
  add_to(*it, ns, count);
}

std::uint32_t ForeignTrace::annotation_name(std::string_view text) {
  const auto [it, fresh] = annotation_ids_.try_emplace(printable(text.substr(0, kLongestLabel)),
                                                       static_cast<std::uint32_t>(annotation_names_.size()));
  if (fresh) annotation_names_.push_back(it->first);
  return it->second;
}

void ForeignTrace::add_annotation(std::string_view text, std::int64_t process, std::uint32_t thread, Nanos begin,
                                  Nanos end, bool collective_domain) {
  const AnnotationMeaning m = meaning_of(text);
  if (m.kind == AnnotationKind::kOther) return;
  Annotation a;
  a.begin = begin, a.end = end, a.process = process, a.thread = thread;
  a.kind = m.kind, a.phase = m.phase, a.pass = m.pass, a.collective = m.collective;
  a.library_range = collective_domain && m.kind == AnnotationKind::kCollective;
  if (annotations_.all().size() >= kMostAnnotations) {
    if (!facts.partial_annotations) {
      facts.notes.push_back("more than " + std::to_string(kMostAnnotations) +
                            " ranges of the host: those that follow are not read");
    }
    facts.partial = facts.partial_annotations = true;
    return;
  }
  if (m.has_unit) {
    const auto [it, fresh] = unit_ids_.try_emplace(printable(m.unit.substr(0, kLongestLabel)),
                                                   static_cast<fsdp::UnitId>(unit_names_.size()));
    if (fresh) unit_names_.push_back(it->first);
    a.unit = it->second;
  }
  if (m.kind == AnnotationKind::kStep) a.name = annotation_name(text);
  if (m.kind == AnnotationKind::kModule) {
    if (annotation_names_.size() >= kMostNames) return;
    a.name = annotation_name(m.module);
  }
  // Of what matters: who works is seen from that.
  facts.processes[process].ranges += m.kind != AnnotationKind::kModule;
  facts.collective_annotations += m.kind == AnnotationKind::kCollective;
  facts.optimizer_annotations += m.kind == AnnotationKind::kOptimizer;
  facts.fsdp_annotations +=
      m.kind == AnnotationKind::kFsdp1 || m.kind == AnnotationKind::kFsdp2 || m.kind == AnnotationKind::kOwn;
  if (end != kNoTime) latest_ = std::max(latest_, end);
  annotations_.add(a);
}

void ForeignTrace::finish() {
  if (facts.source == TraceSource::kKineto) assign_processes();
  annotations_.index(latest_, annotation_names_, unit_names_);
  for (const Annotation& s : annotations_.steps()) step_labels_.push_back(annotation_names_[s.name]);
  for (const std::string& other : annotations_.other_steps()) facts.notes.push_back(other);
  if (annotations_.too_deep() > 0) {
    facts.partial = true;
    facts.notes.push_back(std::to_string(annotations_.too_deep()) + " ranges are nested deeper than " +
                          std::to_string(kDeepestRange) + ": what they say is not used");
  }
  for (auto& [thread, calls] : allocation_calls_) allocations_.emplace(thread, IntervalSet(std::move(calls)));
  allocation_calls_.clear();
  join();
  sum_ranges();
  sort_calls();
  find_impossible();
}

// Of calls inside others (the driver's inside the runtime's) the outermost counts.
void ForeignTrace::sort_calls() {
  for (auto& [thread, calls] : calls_.blocking) {
    std::stable_sort(calls.begin(), calls.end(), [](const BlockingCall& a, const BlockingCall& b) {
      return std::tuple(a.begin, -a.end) < std::tuple(b.begin, -b.end);
    });
    Nanos until = kNoTime;
    std::erase_if(calls, [&](const BlockingCall& c) {
      const bool inside = until != kNoTime && c.begin < until;
      if (!inside) until = c.end;
      return inside;
    });
  }
  for (auto& [thread, begins] : calls_.unmatched) std::sort(begins.begin(), begins.end());
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
