#include "harness/analysis/partition.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "fsdp/core/errors.h"
#include "harness/analysis/interval_set.h"
#include "harness/analysis/span_index.h"

namespace harness {
namespace {

using fsdp::Lane;
using fsdp::Nanos;
using fsdp::Pass;
using fsdp::Span;
using fsdp::SpanKind;

PartitionClass exposed_class(const Span& c) {
  if (c.kind == SpanKind::kAllGather && c.pass == Pass::kForward) return PartitionClass::kExposedAllGatherForward;
  if (c.kind == SpanKind::kAllGather && c.pass == Pass::kBackward) return PartitionClass::kExposedAllGatherBackward;
  return c.kind == SpanKind::kReduceScatter ? PartitionClass::kExposedReduceScatter : PartitionClass::kExposedOther;
}

// To whom one instant belongs.
struct Verdict {
  PartitionClass cls = PartitionClass::kIdle;
  fsdp::UnitId unit = fsdp::kNoUnit;
  Pass pass = Pass::kNone;
  const Span* collective = nullptr;  // exposed classes
  bool queued_behind = false;
};

Verdict of(PartitionClass cls, const Span* s) {
  return s != nullptr ? Verdict{cls, s->unit, s->pass} : Verdict{cls, fsdp::kNoUnit, Pass::kNone};
}

constexpr int kLongestChain = 64;  // of collectives that wait for one another

bool runs_at(const Span& s, Nanos t) { return s.begin <= t && t < s.end; }

// The rules, for one instant. Pure: a function of the spans that are active and of the index.
class Judge {
 public:
  Judge(const SpanIndex& index) : index_(index) {}

  // `next` is the compute lane's next span within the window, or null: then the window's end is next and `last` is the
  // collective of the window that ends last (null: none).
  Verdict judge(Nanos t, const std::vector<const Span*>& active, const Span* next, const Span* last) const {
    const Span* optimizer = first(active, [](const Span& s) { return s.kind == SpanKind::kOptimizer; });
    if (optimizer != nullptr) return of(PartitionClass::kOptimizer, optimizer);
    if (const Span* c = first(active, [](const Span& s) { return s.kind == SpanKind::kCompute; })) {
      const bool flying = first(active, [](const Span& s) { return is_collective(s.kind); }) != nullptr;
      return of(flying ? PartitionClass::kOverlapped : PartitionClass::kCompute, c);
    }
    const Span* copy =
        first(active, [](const Span& s) { return s.kind == SpanKind::kCopy && s.lane == Lane::kCompute; });
    if (copy != nullptr) return of(PartitionClass::kCopy, copy);
    return next != nullptr ? judge_gap(t, active, *next) : judge_tail(t, active, last);
  }

 private:
  template <class P>
  static const Span* first(const std::vector<const Span*>& active, P p) {
    const Span* best = nullptr;
    for (const Span* s : active) {
      if (p(*s) && (best == nullptr || std::pair(s->lane, s->id) < std::pair(best->lane, best->id))) best = s;
    }
    return best;
  }

  static const Span* memory_wait(const std::vector<const Span*>& active, Lane lane) {
    return first(active, [&](const Span& s) { return s.kind == SpanKind::kMemoryWait && s.lane == lane; });
  }

  Verdict judge_gap(Nanos t, const std::vector<const Span*>& active, const Span& k) const {
    if (t < k.issued) {
      if (const std::optional<Verdict> v = host_wait(t, active)) return *v;
      return of(PartitionClass::kHost, &k);
    }
    if (memory_wait(active, Lane::kCompute) != nullptr) return of(PartitionClass::kMemoryWait, &k);
    if (const Span* c = unresolved(k, t, [](const Span& s) { return is_collective(s.kind); })) {
      return waiting_for(*c, t, active);
    }
    if (const Span* c = unresolved(k, t, [](const Span& s) { return s.kind == SpanKind::kCopy; })) {
      return of(PartitionClass::kCopy, c);
    }
    const bool free = unresolved(k, t, [](const Span&) { return true; }) == nullptr;
    return of(free ? PartitionClass::kHost : PartitionClass::kIdle, &k);
  }

  Verdict judge_tail(Nanos t, const std::vector<const Span*>& active, const Span* last) const {
    if (const std::optional<Verdict> v = host_wait(t, active)) return *v;
    if (last != nullptr && t < last->end) return waiting_for(*last, t, active);
    return {PartitionClass::kHost};
  }

  // 4a: what the host is blocked in, if it is.
  std::optional<Verdict> host_wait(Nanos t, const std::vector<const Span*>& active) const {
    if (const Span* m = memory_wait(active, Lane::kHost)) return of(PartitionClass::kMemoryWait, m);
    const Span* w = first(active, [](const Span& s) { return s.kind == SpanKind::kWait && s.lane == Lane::kHost; });
    if (w == nullptr) return std::nullopt;
    if (w->waits.empty()) return of(PartitionClass::kIdle, w);
    const Span* c = nullptr;
    for (std::uint32_t id : w->waits) {
      const Span* s = index_.find(id);
      if (s != nullptr && is_collective(s->kind) && (c == nullptr || s->end > c->end)) c = s;
    }
    if (c == nullptr) return std::nullopt;
    return exposed(*c, t < c->begin && index_.queued_behind(*c, t, active));
  }

  // 4b: the compute lane waits for collective c, which has not ended.
  Verdict waiting_for(const Span& c, Nanos t, const std::vector<const Span*>& active, int depth = 0) const {
    if (runs_at(c, t)) return exposed(c, false);
    if (t >= c.issued && index_.queued_behind(c, t, active)) return exposed(c, true);
    if (t < c.issued) return of(PartitionClass::kHost, &c);
    if (memory_wait(active, c.lane) != nullptr) return of(PartitionClass::kMemoryWait, &c);
    for (std::uint32_t id : c.waits) {
      const Span* s = index_.find(id);
      if (s != nullptr && s->kind == SpanKind::kCopy && runs_at(*s, t)) return of(PartitionClass::kCopy, &c);
    }
    // An earlier collective on another lane, as when an all-reduce follows its reduce-scatter.
    const Span* before = unresolved(c, t, [&](const Span& s) { return is_collective(s.kind) && s.id < c.id; });
    if (before != nullptr && depth < kLongestChain) return waiting_for(*before, t, active, depth + 1);
    return of(PartitionClass::kIdle, &c);
  }

  // Of the spans that s waits for and that have not ended at t, the one that ends last.
  template <class P>
  const Span* unresolved(const Span& s, Nanos t, P p) const {
    const Span* last = nullptr;
    for (std::uint32_t id : s.waits) {
      const Span* w = index_.find(id);
      if (w != nullptr && t < w->end && p(*w) && (last == nullptr || w->end > last->end)) last = w;
    }
    return last;
  }

  static Verdict exposed(const Span& c, bool queued_behind) {
    return {exposed_class(c), c.unit, c.pass, &c, queued_behind};
  }

  const SpanIndex& index_;
};

// Adds what each instant is to its step.
class Tally {
 public:
  explicit Tally(StepPartition& step) : step_(step) {}

  void add(Nanos begin, Nanos end, const Verdict& v, const std::vector<const Span*>& active) {
    const Nanos ns = end - begin;
    step_.classes[static_cast<std::size_t>(v.cls)] += ns;
    add_detail(v, ns);
    if (!step_.pieces.empty() && same(step_.pieces.back(), v) && step_.pieces.back().end == begin) {
      step_.pieces.back().end = end;
    } else {
      step_.pieces.push_back({v.cls, v.unit, v.pass, begin, end});
    }
    bool flying = false, computing = false;
    for (const Span* s : active) {
      flying |= is_collective(s->kind);
      computing |= s->kind == SpanKind::kCompute || s->kind == SpanKind::kOptimizer;
    }
    step_.communication += flying ? ns : 0;
    step_.communication_hidden += flying && computing ? ns : 0;
    if (v.collective != nullptr) charge(*v.collective, ns, v.queued_behind);
  }

  void add_collective(const Span& c, Nanos slot_delay) {
    collective_at_[c.id] = step_.collectives.size();
    step_.collectives.push_back({c.id, c.kind, c.unit, c.pass, 0, 0, slot_delay});
  }

 private:
  static bool same(const PartitionPiece& p, const Verdict& v) {
    return p.cls == v.cls && p.unit == v.unit && p.pass == v.pass;
  }

  void add_detail(const Verdict& v, Nanos ns) {
    const SpanKind kind = v.collective != nullptr ? v.collective->kind : SpanKind::kCompute;
    const auto [at, fresh] = detail_at_.try_emplace({v.cls, v.unit, v.pass, kind}, step_.details.size());
    if (fresh) step_.details.push_back({v.cls, v.unit, v.pass, kind, 0});
    step_.details[at->second].ns += ns;
  }

  void charge(const Span& c, Nanos ns, bool queued_behind) {
    // Charged in this step but in flight only later or earlier.
    if (collective_at_.count(c.id) == 0) add_collective(c, 0);
    CollectiveDetail& detail = step_.collectives[collective_at_.at(c.id)];
    detail.exposed += ns;
    detail.queued_behind += queued_behind ? ns : 0;
  }

  StepPartition& step_;
  std::map<std::tuple<PartitionClass, fsdp::UnitId, Pass, SpanKind>, std::size_t> detail_at_;  // into step_.details
  std::unordered_map<std::uint32_t, std::size_t> collective_at_;  // span id -> into step_.collectives
};

std::vector<StepPartition> windows_of(const std::vector<Span>& spans) {
  std::vector<StepPartition> steps;
  for (const Span& s : spans) {
    if (s.kind != SpanKind::kStep) continue;
    StepPartition p;
    p.rank = s.rank;
    p.step = s.step;
    p.begin = s.begin;
    p.end = std::max(s.begin, s.end);
    steps.push_back(std::move(p));
  }
  if (steps.empty()) throw fsdp::Error("[partition] no step in the trace; record at least one whole step");
  std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].begin < steps[i - 1].end) {
      throw fsdp::Error("[partition] steps " + std::to_string(steps[i - 1].step) + " and " +
                        std::to_string(steps[i].step) + " of rank " + std::to_string(steps[i].rank) +
                        " overlap; give one rank's spans at a time");
    }
  }
  return steps;
}

// Every time at which the verdict can change.
std::vector<Nanos> cuts_of(const StepPartition& step, const SpanIndex& index) {
  std::vector<Nanos> cuts{step.begin, step.end};
  auto add = [&](Nanos t) {
    if (step.begin < t && t < step.end) cuts.push_back(t);
  };
  index.for_each_within(step.begin, step.end, [&](const Span& s) {
    add(s.issued);
    add(s.begin);
    add(s.end);
  });
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

void partition_step(const SpanIndex& index, StepPartition& step, const std::vector<Nanos>& cuts) {
  const Judge judge(index);
  Tally tally(step);
  std::vector<const Span*> waiting, active;
  index.for_each_within(step.begin, step.end, [&](const Span& s) {
    if (s.kind == SpanKind::kStep || s.end <= s.begin) return;
    waiting.push_back(&s);
    if (is_collective(s.kind)) tally.add_collective(s, index.slot_delay(s));
  });
  const Span* last = index.last_collective_within(step.begin, step.end);
  std::size_t arrived = 0;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Nanos t = cuts[i];
    std::erase_if(active, [&](const Span* s) { return s->end <= t; });
    for (; arrived < waiting.size() && waiting[arrived]->begin <= t; ++arrived) {
      if (waiting[arrived]->end > t) active.push_back(waiting[arrived]);
    }
    const Span* next = index.next_on_compute_lane(t);
    const bool of_this_step =
        next != nullptr && (next->begin < step.end || (next->begin == step.end && next->step == step.step));
    tally.add(t, cuts[i + 1], judge.judge(t, active, of_this_step ? next : nullptr, last), active);
  }
}

}  // namespace

std::string_view name_of(PartitionClass c) {
  static constexpr std::array<std::string_view, kPartitionClassCount> kNames = {"compute",
                                                                                "overlapped",
                                                                                "exposed_all_gather_forward",
                                                                                "exposed_all_gather_backward",
                                                                                "exposed_reduce_scatter",
                                                                                "exposed_other",
                                                                                "copy",
                                                                                "host",
                                                                                "memory_wait",
                                                                                "optimizer",
                                                                                "idle"};
  return kNames[static_cast<std::size_t>(c)];
}

Nanos sum(const Partition& p) { return std::accumulate(p.begin(), p.end(), Nanos{0}); }

Nanos exposed(const Partition& p) {
  Nanos total = 0;
  for (PartitionClass c : {PartitionClass::kExposedAllGatherForward, PartitionClass::kExposedAllGatherBackward,
                           PartitionClass::kExposedReduceScatter, PartitionClass::kExposedOther}) {
    total += p[static_cast<std::size_t>(c)];
  }
  return total;
}

std::vector<StepPartition> partition_steps(const std::vector<Span>& spans) {
  std::vector<StepPartition> steps = windows_of(spans);
  const SpanIndex index(spans);
  for (StepPartition& step : steps) partition_step(index, step, cuts_of(step, index));
  return steps;
}

std::size_t median_step(const std::vector<StepPartition>& steps) {
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return steps[a].end - steps[a].begin < steps[b].end - steps[b].begin;
  });
  return steps.empty() ? 0 : order[(steps.size() - 1) / 2];
}

}  // namespace harness
