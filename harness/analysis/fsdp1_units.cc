#include "harness/analysis/fsdp1_units.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace harness {
namespace {

using fsdp::Pass;

bool is_fsdp1(const Annotation& a, Phase phase) { return a.kind == AnnotationKind::kFsdp1 && a.phase == phase; }

class Namer {
 public:
  Namer(std::vector<Annotation>& annotations, std::vector<std::string>& names)
      : annotations_(annotations), names_(names), positions_(annotations.size(), -1) {}

  void visit(std::int32_t i) {
    Annotation& a = at(i);
    Round& round = rounds_[a.process];
    switch (a.phase) {
      case Phase::kForward:
        if (around(i, [](const Annotation& x) { return is_fsdp1(x, Phase::kForward); }) < 0) round = {};
        round.forwards.push_back(i);
        return assign(i, static_cast<int>(round.forwards.size()) - 1);
      case Phase::kPreForward: {
        const std::int32_t f = around(i, [](const Annotation& x) { return is_fsdp1(x, Phase::kForward); });
        return f >= 0 ? assign(i, position(f)) : void();
      }
      case Phase::kPreBackward:
        return assign(i, nth_to_leave(round, round.pre_backwards++));
      case Phase::kPostBackward:
        return assign(i, static_cast<int>(round.forwards.size()) - 1 - round.post_backwards++);
      case Phase::kPrefetch:
        return prefetch(i, round);
      default:
        return;
    }
  }

 private:
  struct Round {                                // one outermost forward and the backward that follows
    std::vector<std::int32_t> forwards;         // by begin
    int pre_backwards = 0, post_backwards = 0;  // hooks seen
  };

  Annotation& at(std::int32_t i) { return annotations_[static_cast<std::size_t>(i)]; }
  int& position(std::int32_t i) { return positions_[static_cast<std::size_t>(i)]; }

  template <class P>
  std::int32_t around(std::int32_t i, P wanted) {
    std::int32_t p = at(i).parent;
    while (p >= 0 && !wanted(at(p))) p = at(p).parent;
    return p;
  }

  void prefetch(std::int32_t i, const Round& round) {
    const std::int32_t p = around(i, [](const Annotation& x) {
      return x.kind == AnnotationKind::kFsdp1 && x.phase != Phase::kNone && x.phase != Phase::kPrefetch;
    });
    if (p < 0 || position(p) < 0) return;
    at(i).pass = at(p).pass;
    assign(i, at(i).pass == Pass::kForward ? position(p) + 1 : nth_to_leave(round, round.pre_backwards));
  }

  // Position of the forward whose end is the n-th from the last; -1: there are not so many.
  int nth_to_leave(const Round& round, int n) {
    if (n < 0 || n >= static_cast<int>(round.forwards.size())) return -1;
    std::vector<int> order(round.forwards.size());
    std::iota(order.begin(), order.end(), 0);
    auto end = [&](int k) { return at(round.forwards[static_cast<std::size_t>(k)]).end; };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return end(a) > end(b); });
    return order[static_cast<std::size_t>(n)];
  }

  void assign(std::int32_t i, int n) {
    if (n < 0) return;
    position(i) = n;
    const auto [it, fresh] = ids_.try_emplace({at(i).process, n}, static_cast<fsdp::UnitId>(names_.size()));
    if (fresh) names_.push_back("unit " + std::to_string(n) + (n == 0 ? " (root)" : ""));
    at(i).unit = it->second;
  }

  std::vector<Annotation>& annotations_;
  std::vector<std::string>& names_;
  std::vector<int> positions_;  // of each annotation's unit in its round; -1: unknown
  std::map<std::pair<std::int64_t, int>, fsdp::UnitId> ids_;
  std::map<std::int64_t, Round> rounds_;
};

}  // namespace

void name_fsdp1_units(std::vector<Annotation>& annotations, std::vector<std::string>& unit_names) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < annotations.size(); ++i) {
    if (annotations[i].kind == AnnotationKind::kFsdp1) order.push_back(static_cast<std::int32_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return annotations[static_cast<std::size_t>(a)].begin < annotations[static_cast<std::size_t>(b)].begin;
  });
  Namer namer(annotations, unit_names);
  for (const std::int32_t i : order) namer.visit(i);
}

}  // namespace harness
