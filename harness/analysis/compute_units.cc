#include "harness/analysis/compute_units.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "harness/analysis/annotations.h"

namespace harness {

using fsdp::Nanos;
using fsdp::Pass;

namespace {

enum class What : std::uint8_t { kOpens, kCloses, kClosesAll };

struct Event {
  std::uint32_t thread;
  Nanos at;
  What what;
  ComputeUnits::Owner owner;
};

// Nested units: the innermost computes. A unit is open at most once.
class OpenUnits {
 public:
  void take(const Event& e) {
    if (e.what == What::kClosesAll) {
      open_.clear();
      place_.clear();
      return;
    }
    // A unit that opens again was never closed: it and what lies inside are of the pass before.
    const auto it = place_.find(e.owner.unit);
    if (it != place_.end() && (e.what == What::kOpens || open_[it->second].pass == e.owner.pass)) close(it->second);
    if (e.what != What::kOpens) return;
    place_[e.owner.unit] = open_.size();
    open_.push_back(e.owner);
  }
  ComputeUnits::Owner innermost() const { return open_.empty() ? ComputeUnits::Owner{} : open_.back(); }

 private:
  void close(std::size_t from) {
    while (open_.size() > from) {
      place_.erase(open_.back().unit);
      open_.pop_back();
    }
  }
  std::vector<ComputeUnits::Owner> open_;
  std::unordered_map<fsdp::UnitId, std::size_t> place_;  // into open_
};

std::vector<Event> events_of(const std::vector<Annotation>& annotations) {
  std::vector<Event> events;
  for (const Annotation& a : annotations) {
    if (a.kind == AnnotationKind::kStep || a.kind == AnnotationKind::kOptimizer) {
      events.push_back({a.thread, a.begin, What::kClosesAll, {}});
    }
    if ((a.kind != AnnotationKind::kFsdp1 && a.kind != AnnotationKind::kFsdp2) || a.unit == fsdp::kNoUnit) continue;
    const bool forward = a.phase == Phase::kPreForward || a.phase == Phase::kPostForward;
    if (forward && a.kind == AnnotationKind::kFsdp1) continue;  // FSDP1 brackets the forward itself
    const ComputeUnits::Owner owner{a.unit, forward ? Pass::kForward : Pass::kBackward};
    if (a.phase == Phase::kPreForward || a.phase == Phase::kPreBackward) {
      events.push_back({a.thread, a.end, What::kOpens, owner});
    } else if (a.phase == Phase::kPostForward || a.phase == Phase::kPostBackward || a.phase == Phase::kReduce) {
      events.push_back({a.thread, a.begin, What::kCloses, owner});
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return std::tie(a.thread, a.at) < std::tie(b.thread, b.at); });
  return events;
}

}  // namespace

ComputeUnits::ComputeUnits(const std::vector<Annotation>& annotations) {
  OpenUnits open;
  for (const Event& e : events_of(annotations)) {
    if (!changes_.empty() && changes_.back().thread != e.thread) open = {};
    open.take(e);
    changes_.push_back({e.thread, e.at, open.innermost()});
  }
}

ComputeUnits::Owner ComputeUnits::at(std::uint32_t thread, Nanos t) const {
  const auto after = std::partition_point(changes_.begin(), changes_.end(), [&](const Change& c) {
    return std::tie(c.thread, c.at) <= std::tie(thread, t);
  });
  if (after == changes_.begin() || std::prev(after)->thread != thread) return {};
  return std::prev(after)->owner;
}

}  // namespace harness
