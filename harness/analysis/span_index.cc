#include "harness/analysis/span_index.h"

#include <limits>
#include <string>
#include <tuple>

#include "fsdp/core/errors.h"

namespace harness {

using fsdp::Lane;
using fsdp::Nanos;
using fsdp::Span;
using fsdp::SpanKind;

namespace {
constexpr int kFarthestBack = 4096;  // collectives that are looked at for the one before another

bool in_order(const Span* a, const Span* b) {
  return std::tuple(a->begin, a->lane, a->id) < std::tuple(b->begin, b->lane, b->id);
}
}  // namespace

SpanIndex::SpanIndex(const std::vector<Span>& spans) {
  by_id_.reserve(spans.size());
  for (const Span& s : spans) {
    if (s.id != 0 && !by_id_.emplace(s.id, &s).second) {
      throw fsdp::Error("[partition] span id " + std::to_string(s.id) + " occurs twice in rank " +
                        std::to_string(s.rank) + "; give one rank's spans at a time");
    }
    by_begin_.push_back(&s);
    const bool work = s.kind == SpanKind::kCompute || s.kind == SpanKind::kOptimizer || s.kind == SpanKind::kCopy;
    if (s.lane == Lane::kCompute && work) compute_lane_.push_back(&s);
    if (is_collective(s.kind)) collectives_.push_back(&s);
  }
  std::sort(by_begin_.begin(), by_begin_.end(), in_order);
  std::sort(compute_lane_.begin(), compute_lane_.end(), in_order);
  std::sort(collectives_.begin(), collectives_.end(), in_order);
  Nanos busy_until = std::numeric_limits<Nanos>::min();
  for (const Span* c : collectives_) {
    if (c->end > c->begin && c->begin < busy_until) one_communicator_ = false;
    busy_until = std::max(busy_until, c->end);
  }
  std::stable_sort(collectives_.begin(), collectives_.end(),
                   [](const Span* a, const Span* b) { return std::pair(a->end, a->id) < std::pair(b->end, b->id); });
  while (leaves_ < by_begin_.size()) leaves_ *= 2;
  latest_.assign(2 * leaves_, std::numeric_limits<Nanos>::min());
  for (std::size_t i = 0; i < by_begin_.size(); ++i) latest_[leaves_ + i] = by_begin_[i]->end;
  for (std::size_t k = leaves_; k-- > 1;) latest_[k] = std::max(latest_[2 * k], latest_[2 * k + 1]);
  by_issue_ = by_begin_;
  std::stable_sort(by_issue_.begin(), by_issue_.end(),
                   [](const Span* a, const Span* b) { return a->issued < b->issued; });
}

std::size_t SpanIndex::next_ending(std::size_t from, Nanos t) const {
  if (from >= by_begin_.size()) return by_begin_.size();
  std::size_t k = leaves_ + from;
  // Up, until the node or what lies right of it holds one; then down to the first leaf.
  while (latest_[k] < t) {
    while (k % 2 == 1) k /= 2;
    if (k == 0) return by_begin_.size();
    ++k;
  }
  while (k < leaves_) k = latest_[2 * k] >= t ? 2 * k : 2 * k + 1;
  return std::min(k - leaves_, by_begin_.size());
}

std::vector<const Span*> SpanIndex::issued_before(Nanos begin, Nanos end) const {
  std::vector<const Span*> out;
  auto it = std::partition_point(by_issue_.begin(), by_issue_.end(), [&](const Span* s) { return s->issued < begin; });
  for (; it != by_issue_.end() && (*it)->issued < end; ++it) {
    if ((*it)->begin >= end) out.push_back(*it);
  }
  std::sort(out.begin(), out.end(), in_order);
  return out;
}

const Span* SpanIndex::find(std::uint32_t id) const {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

const Span* SpanIndex::next_on_compute_lane(Nanos t) const {
  auto it =
      std::partition_point(compute_lane_.begin(), compute_lane_.end(), [&](const Span* s) { return s->begin <= t; });
  return it == compute_lane_.end() ? nullptr : *it;
}

const Span* SpanIndex::last_collective_within(Nanos begin, Nanos end) const {
  auto it =
      std::partition_point(collectives_.begin(), collectives_.end(), [&](const Span* s) { return s->end <= end; });
  while (it != collectives_.begin()) {
    const Span* c = *--it;
    if (c->end <= begin) break;
    if (c->begin >= begin) return c;
  }
  return nullptr;
}

bool SpanIndex::queued_behind(const Span& c, Nanos t, const std::vector<const Span*>& active) const {
  return std::any_of(active.begin(), active.end(), [&](const Span* d) {
    return d != &c && is_collective(d->kind) && d->id < c.id && d->end <= c.begin && d->begin <= t && t < d->end &&
           (one_communicator_ || d->lane == c.lane);
  });
}

Nanos SpanIndex::slot_delay(const Span& c) const {
  bool slot = false;
  Nanos ready = c.issued;
  for (std::uint32_t id : c.waits) {
    const Span* s = find(id);
    if (s == nullptr) continue;
    if (s->kind == SpanKind::kMemoryWait || (s->kind == SpanKind::kCompute && s->unit != c.unit)) {
      slot = true;
    } else {
      ready = std::max(ready, s->end);
    }
  }
  if (!slot) return 0;
  auto it =
      std::partition_point(collectives_.begin(), collectives_.end(), [&](const Span* d) { return d->end <= c.begin; });
  for (int looked = 0; it != collectives_.begin() && looked < kFarthestBack; ++looked) {
    const Span* d = *--it;
    if (d->id < c.id && (one_communicator_ || d->lane == c.lane)) {
      ready = std::max(ready, d->end);
      break;
    }
  }
  return std::max(Nanos{0}, c.begin - ready);
}

}  // namespace harness
