// Operations and the launch calls behind them.
#include <algorithm>

#include "fsdp/core/errors.h"
#include "harness/trace/foreign_sorters.h"

namespace harness {

using fsdp::Nanos;
using fsdp::SpanKind;

namespace {

// More processes in one Kineto file than ranks that anybody merges.
constexpr std::size_t kMostProcesses = 64;
// A kernel may seem to begin before its launch call by the error of the clocks.
constexpr Nanos kClockError = 50'000;

// The calls that share a correlation id: of each process the first, which is the outermost.
class Calls {
 public:
  struct Entry {
    LaunchCall call;
    bool kernel, graph, matched;
  };
  explicit Calls(RunSorter<LaunchCall, ByKey>& sorter) : cursor_(sorter.cursor()), have_(cursor_.next(next_)) {}

  // Moves on to the calls of `correlation`; `leave` sees each call that is left behind.
  template <class F>
  std::vector<Entry>& at(std::uint64_t correlation, F leave) {
    if (entries_.empty() || entries_.front().call.correlation != correlation) drop(leave);
    while (have_ && next_.correlation < correlation) {
      load();
      drop(leave);
    }
    if (have_ && next_.correlation == correlation) load();
    return entries_;
  }
  template <class F>
  void finish(F leave) {
    drop(leave);
    while (have_) {
      load();
      drop(leave);
    }
  }
  std::int64_t collisions() const { return collisions_; }

  static Entry* of(std::vector<Entry>& entries, std::int64_t process) {
    const auto it =
        std::partition_point(entries.begin(), entries.end(), [&](const Entry& e) { return e.call.process < process; });
    return it != entries.end() && it->call.process == process ? &*it : nullptr;
  }

 private:
  template <class F>
  void drop(F leave) {
    for (const Entry& e : entries_) leave(e);
    entries_.clear();
  }

  // All calls of the id that comes next.
  void load() {
    const std::uint64_t id = next_.correlation;
    for (; have_ && next_.correlation == id; have_ = cursor_.next(next_)) {
      if (entries_.empty() || entries_.back().call.process != next_.process) {
        entries_.push_back({next_, next_.kernel, next_.graph, false});
        continue;
      }
      Entry& e = entries_.back();
      // In one process an id is used once: the driver's call lies inside the runtime's.
      const bool inside = next_.thread == e.call.thread && next_.begin < std::max(e.call.end, e.call.begin + 1);
      collisions_ += !inside && next_.kernel && e.kernel;
      e.kernel |= next_.kernel;
      e.graph |= next_.graph;
    }
  }

  RunSorter<LaunchCall, ByKey>::Cursor cursor_;
  LaunchCall next_{};
  bool have_;
  std::vector<Entry> entries_;
  std::int64_t collisions_ = 0;
};

// How well a row's operations fit the calls of a process.
struct Fit {
  std::int64_t matched = 0, early = 0;  // early: the operation began before its call
};
struct RowFits {
  std::int64_t operations = 0, ambiguous = 0;  // with a call; with calls of several processes
  std::map<std::int64_t, Fit> by_process;
};

}  // namespace

void ForeignTrace::refuse_mixture(const std::string& why) const {
  throw fsdp::ConfigError("[" + facts.path + "] " + why + "; give one file of each rank");
}

void ForeignTrace::assign_one(std::int64_t process) {
  for (DeviceRow& r : rows_) r.process = process;
  annotations_.set_process(process);
  ProcessCalls all;
  for (const auto& [id, p] : facts.processes) {
    all.launches += p.launches;
    all.calls += p.calls;
    all.ranges += p.ranges;
  }
  facts.processes = {{process, all}};
}

// Kineto's device rows do not say whose they are; a file of one process needs no more than its calls.
void ForeignTrace::assign_processes() {
  std::vector<std::int64_t> callers;
  for (const auto& [process, p] : facts.processes) {
    if (p.calls > 0) callers.push_back(process);
  }
  if (callers.size() <= 1 || rows_.empty()) return assign_one(callers.empty() ? 0 : callers.front());
  if (callers.size() > kMostProcesses) {
    refuse_mixture("holds the calls of " + std::to_string(callers.size()) + " processes");
  }
  assign_several();
}

void ForeignTrace::assign_several() {
  std::vector<RowFits> fits(rows_.size());
  Calls calls(sorters_->launches);
  sorters_->unjoined.for_each([&](const DeviceOp& op) {
    if (op.correlation == 0) return;
    const std::vector<Calls::Entry>& found = calls.at(op.correlation, [](const Calls::Entry&) {});
    RowFits& f = fits[op.row];
    f.operations += !found.empty();
    f.ambiguous += found.size() > 1;
    for (const Calls::Entry& e : found) {
      Fit& fit = f.by_process[e.call.process];
      ++fit.matched;
      fit.early += e.call.begin > op.begin + kClockError;
    }
  });
  row_owners_.assign(rows_.size(), std::nullopt);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    if (fits[r].ambiguous == 0) continue;
    std::vector<std::int64_t> able;
    std::string names;
    for (const auto& [process, fit] : fits[r].by_process) {
      names += (names.empty() ? "" : ", ") + std::to_string(process);
      if (fit.matched == fits[r].operations && fit.early == 0) able.push_back(process);
    }
    if (able.size() != 1) {
      refuse_mixture("holds the events of several processes (" + names +
                     ") whose correlation ids collide: which of them launched the work of device " +
                     std::to_string(rows_[r].device) + " is not recorded");
    }
    row_owners_[r] = able.front();
  }
  facts.several_processes = true;
}

// Of a row that was made before it was known whose it is, to the row of the process.
void ForeignTrace::move_to_process(DeviceOp& op, std::int64_t process) {
  const auto key = std::pair(op.row, process);
  auto it = moved_rows_.find(key);
  if (it == moved_rows_.end()) it = moved_rows_.emplace(key, row(process, rows_[op.row].device)).first;
  op.row = it->second;
}

void ForeignTrace::join() {
  Calls calls(sorters_->launches);
  std::int64_t launches = 0, doubled = 0, kernels = 0;
  std::uint64_t last_id = 0;
  std::uint16_t last_row = 0;
  auto leave = [&](const Calls::Entry& e) {
    launches += e.kernel;
    if (!e.kernel || e.matched) return;
    ++facts.processes[e.call.process].unmatched;
    calls_.unmatched[e.call.thread].push_back(e.call.begin);
  };
  sorters_->unjoined.for_each([&](DeviceOp op) {
    Calls::Entry* e = nullptr;
    if (op.correlation != 0) {
      std::vector<Calls::Entry>& found = calls.at(op.correlation, leave);
      if (facts.several_processes) {
        const std::optional<std::int64_t>& owner = row_owners_.at(op.row);
        if (owner || !found.empty()) move_to_process(op, owner ? *owner : found.front().call.process);
      }
      e = Calls::of(found, rows_[op.row].process);
    }
    const bool same = op.correlation == last_id && op.row == last_row;
    kernels = (same ? kernels : 0) + (op.kind == OpKind::kKernel);
    last_id = op.correlation, last_row = op.row;
    ++facts.processes[rows_[op.row].process].operations;
    if (e != nullptr) {
      e->matched = true;
      op.launch_begin = e->call.begin;
      op.launch_end = e->call.end;
      op.thread = e->call.thread;
      doubled += op.kind == OpKind::kKernel && kernels == 2 && e->kernel && !e->graph;
    }
    classify(op);
    sorters_->ops.push(op);
  });
  calls.finish(leave);
  sorters_->unjoined.clear();
  sorters_->launches.clear();
  judge_collisions(calls.collisions() + doubled, launches);
}

void ForeignTrace::judge_collisions(std::int64_t collisions, std::int64_t launches) {
  if (collisions == 0) return;
  if (collisions > 1 && collisions * 100 > launches) {
    refuse_mixture("uses " + std::to_string(collisions) + " of " + std::to_string(launches) +
                   " correlation ids more than once: it was merged from several processes");
  }
  facts.partial = true;
  facts.notes.push_back(std::to_string(collisions) +
                        " correlation ids are used more than once: the launch calls of their kernels are not certain");
}

void ForeignTrace::classify(DeviceOp& op) {
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
  if (op.kind == OpKind::kKernel && by_name.communication >= CommunicationName::kOther) {
    op.cls = OpClass::kCommunication;
    op.emulated = by_name.emulated;
    op.other_library = by_name.communication == CommunicationName::kOther;
    if (op.collective == SpanKind::kOtherCollective) op.collective = by_name.collective;
    if (op.collective == SpanKind::kOtherCollective) op.collective = at.collective;
  } else if (op.kind != OpKind::kKernel) {
    classify_copy(op, at);
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
  op.looks_like_communication = op.kind == OpKind::kKernel && by_name.communication == CommunicationName::kHint;
  note_range(op, at);
}

// A collective by copy engines is copies: those of the communication library, and those to another device inside the
// call or FSDP's range of a collective.
void ForeignTrace::classify_copy(DeviceOp& op, const Attribution& at) const {
  op.cls = OpClass::kCopy;
  const bool to_peers = name_classes_[op.name].between_devices && (at.in_call || at.in_gather) && facts.world != 1;
  if (!at.library_range && !to_peers) {
    op.annotated_copy = at.fsdp_copy;
    return;
  }
  op.cls = OpClass::kCommunication;
  if (to_peers) op.range = at.range;
  if (op.collective == SpanKind::kOtherCollective) op.collective = at.collective;
}

void ForeignTrace::note_range(const DeviceOp& op, const Attribution& at) {
  if (at.range < 0 || facts.world == 1) return;
  Range& r = ranges_[at.range];
  r.row = op.row;
  if (op.cls == OpClass::kCommunication) {
    r.known = true;
  } else {
    ++r.operations;
    r.ns += op.end - op.begin;
  }
}

void ForeignTrace::sum_ranges() {
  unknown_collectives_.resize(rows_.size());
  for (const auto& [annotation, r] : ranges_) {
    if (r.known || r.operations == 0) continue;
    UnknownCollectives& u = unknown_collectives_[r.row];
    const Annotation& a = annotations_.at(annotation);
    if (u.ranges++ == 0) {
      u.kind = a.phase == Phase::kAllGather ? SpanKind::kAllGather
               : a.phase == Phase::kReduce  ? SpanKind::kReduceScatter
                                            : a.collective;
    }
    u.operations += r.operations;
    u.ns += r.ns;
  }
  ranges_.clear();
}

}  // namespace harness
