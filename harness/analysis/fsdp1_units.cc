#include "harness/analysis/fsdp1_units.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

namespace harness {
namespace {

using fsdp::Pass;

bool is_fsdp1(const Annotation& a, Phase phase) { return a.kind == AnnotationKind::kFsdp1 && a.phase == phase; }
bool is_forward(const Annotation& a) { return is_fsdp1(a, Phase::kForward); }

// Modules that hold another one and compute nothing.
bool only_wraps(std::string_view module) {
  return module.starts_with("CheckpointWrapper_") || module.starts_with("OffloadWrapper_") ||
         module.starts_with("OptimizedModule_");
}

// Names of the modules that forward ranges are of.
class Modules {
 public:
  Modules(const std::vector<Annotation>& annotations, const std::vector<std::string>& names)
      : annotations_(annotations), names_(names) {
    for (std::size_t i = 0; i < annotations.size(); ++i) {
      if (annotations[i].kind != AnnotationKind::kModule || only_wraps(name(i))) continue;
      const std::int32_t around = nearest(i);
      if (around >= 0 && is_forward(at(around))) of_.try_emplace(around, name(i));
    }
  }
  // Empty: the trace does not say.
  std::string_view of(std::int32_t forward) const {
    const auto it = of_.find(forward);
    return it == of_.end() ? std::string_view() : it->second;
  }

 private:
  const Annotation& at(std::int32_t i) const { return annotations_[static_cast<std::size_t>(i)]; }
  std::string_view name(std::size_t i) const { return names_[annotations_[i].name]; }

  // The nearest range around a module's call that is FSDP1's or another module's.
  std::int32_t nearest(std::size_t i) const {
    std::int32_t p = annotations_[i].parent;
    for (; p >= 0; p = at(p).parent) {
      if (at(p).kind == AnnotationKind::kFsdp1) break;
      if (at(p).kind == AnnotationKind::kModule && !only_wraps(name(static_cast<std::size_t>(p)))) break;
    }
    return p;
  }

  const std::vector<Annotation>& annotations_;
  const std::vector<std::string>& names_;
  std::map<std::int32_t, std::string_view> of_;
};

class Namer {
 public:
  Namer(std::vector<Annotation>& annotations, const std::vector<std::string>& names,
        std::vector<std::string>& unit_names)
      : annotations_(annotations), modules_(annotations, names), unit_names_(unit_names) {}

  // In order of begin. Forwards go first: a prefetch is for one that begins later.
  void collect(std::int32_t i) {
    if (!is_forward(at(i))) return;
    Process& process = processes_[at(i).process];
    if (around(i, is_forward) < 0) process.rounds.emplace_back();
    if (process.rounds.empty()) return;
    Round& round = process.rounds.back();
    round.position[i] = static_cast<int>(round.forwards.size());
    round.forwards.push_back(i);
  }

  void visit(std::int32_t i) {
    Process& process = processes_[at(i).process];
    if (at(i).phase == Phase::kForward && around(i, is_forward) < 0) ++process.current;
    if (process.current < 0 || process.current >= static_cast<int>(process.rounds.size())) return;
    Round& round = process.rounds[static_cast<std::size_t>(process.current)];
    const int n = position_of(i, round);
    if (n < 0 || n >= static_cast<int>(round.forwards.size())) return;
    positions_[i] = n;
    at(i).unit = unit_of(round.forwards[static_cast<std::size_t>(n)], n);
  }

 private:
  struct Round {                                // one outermost forward and the backward that follows
    std::vector<std::int32_t> forwards;         // by begin
    std::map<std::int32_t, int> position;       // of each of them
    std::vector<int> leaving;                   // positions, those whose forward ends last first; made when asked for
    int pre_backwards = 0, post_backwards = 0;  // hooks seen
  };
  struct Process {
    std::vector<Round> rounds;
    int current = -1;
  };

  Annotation& at(std::int32_t i) { return annotations_[static_cast<std::size_t>(i)]; }

  template <class P>
  std::int32_t around(std::int32_t i, P wanted) {
    std::int32_t p = at(i).parent;
    while (p >= 0 && !wanted(at(p))) p = at(p).parent;
    return p;
  }

  // Position of the forward whose unit the range is of; -1: unknown.
  int position_of(std::int32_t i, Round& round) {
    switch (at(i).phase) {
      case Phase::kForward:
        return position_in(round, i);
      case Phase::kPreForward:
        return position_in(round, around(i, is_forward));
      case Phase::kPreBackward:
        return nth_to_leave(round, round.pre_backwards++);
      case Phase::kPostBackward:
        return static_cast<int>(round.forwards.size()) - 1 - round.post_backwards++;
      case Phase::kPrefetch:
        return prefetched(i, round);
      default:
        return -1;
    }
  }

  static int position_in(const Round& round, std::int32_t forward) {
    const auto it = round.position.find(forward);
    return it == round.position.end() ? -1 : it->second;
  }

  int prefetched(std::int32_t i, Round& round) {
    const std::int32_t p = around(i, [](const Annotation& x) {
      return x.kind == AnnotationKind::kFsdp1 && x.phase != Phase::kNone && x.phase != Phase::kPrefetch;
    });
    const auto outer = positions_.find(p);
    if (outer == positions_.end()) return -1;
    at(i).pass = at(p).pass;
    return at(i).pass == Pass::kForward ? outer->second + 1 : nth_to_leave(round, round.pre_backwards);
  }

  // Position of the forward whose end is the n-th from the last; -1: there are not so many.
  int nth_to_leave(Round& round, int n) {
    if (n < 0 || n >= static_cast<int>(round.forwards.size())) return -1;
    std::vector<int>& order = round.leaving;
    if (order.empty()) {
      order.resize(round.forwards.size());
      std::iota(order.begin(), order.end(), 0);
      auto end = [&](int k) { return at(round.forwards[static_cast<std::size_t>(k)]).end; };
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return end(a) > end(b); });
    }
    return order[static_cast<std::size_t>(n)];
  }

  fsdp::UnitId unit_of(std::int32_t forward, int n) {
    const std::string_view module = modules_.of(forward);
    std::string name = module.empty() ? "unit " + std::to_string(n) : std::string(module);
    if (n == 0) name += " (root)";
    const auto [it, fresh] =
        ids_.try_emplace({at(forward).process, std::move(name)}, static_cast<fsdp::UnitId>(unit_names_.size()));
    if (fresh) unit_names_.push_back(it->first.second);
    return it->second;
  }

  std::vector<Annotation>& annotations_;
  Modules modules_;
  std::vector<std::string>& unit_names_;
  std::map<std::int32_t, int> positions_;  // of each annotation's unit in its round
  std::map<std::pair<std::int64_t, std::string>, fsdp::UnitId> ids_;
  std::map<std::int64_t, Process> processes_;
};

}  // namespace

void name_fsdp1_units(std::vector<Annotation>& annotations, const std::vector<std::string>& names,
                      std::vector<std::string>& unit_names) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < annotations.size(); ++i) {
    if (annotations[i].kind == AnnotationKind::kFsdp1) order.push_back(static_cast<std::int32_t>(i));
  }
  if (order.empty()) return;
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return annotations[static_cast<std::size_t>(a)].begin < annotations[static_cast<std::size_t>(b)].begin;
  });
  Namer namer(annotations, names, unit_names);
  for (const std::int32_t i : order) namer.collect(i);
  for (const std::int32_t i : order) namer.visit(i);
}

}  // namespace harness
