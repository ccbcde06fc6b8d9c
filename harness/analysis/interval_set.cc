#include "harness/analysis/interval_set.h"

#include <algorithm>

namespace harness {

IntervalSet::IntervalSet(std::vector<Interval> any) {
  std::erase_if(any, [](const Interval& i) { return i.end <= i.begin; });
  std::sort(any.begin(), any.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (const Interval& i : any) {
    if (!intervals_.empty() && i.begin <= intervals_.back().end) {
      intervals_.back().end = std::max(intervals_.back().end, i.end);
    } else {
      intervals_.push_back(i);
    }
  }
}

fsdp::Nanos IntervalSet::length() const {
  fsdp::Nanos total = 0;
  for (const Interval& i : intervals_) total += i.length();
  return total;
}

bool IntervalSet::contains(fsdp::Nanos t) const {
  auto after = std::upper_bound(intervals_.begin(), intervals_.end(), t,
                                [](fsdp::Nanos v, const Interval& i) { return v < i.begin; });
  return after != intervals_.begin() && t < std::prev(after)->end;
}

IntervalSet IntervalSet::clipped(fsdp::Nanos begin, fsdp::Nanos end) const {
  IntervalSet out;
  auto it =
      std::partition_point(intervals_.begin(), intervals_.end(), [&](const Interval& i) { return i.end <= begin; });
  for (; it != intervals_.end() && it->begin < end; ++it) {
    const Interval part{std::max(it->begin, begin), std::min(it->end, end)};
    if (part.begin < part.end) out.intervals_.push_back(part);
  }
  return out;
}

fsdp::Nanos IntervalSet::length_within(fsdp::Nanos begin, fsdp::Nanos end) const {
  if (begin >= end) return 0;
  auto it =
      std::partition_point(intervals_.begin(), intervals_.end(), [&](const Interval& i) { return i.end <= begin; });
  fsdp::Nanos total = 0;
  for (; it != intervals_.end() && it->begin < end; ++it) total += std::min(it->end, end) - std::max(it->begin, begin);
  return total;
}

IntervalSet operator|(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> all = a.intervals_;
  all.insert(all.end(), b.intervals_.begin(), b.intervals_.end());
  return IntervalSet(std::move(all));
}

IntervalSet operator&(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet out;
  auto i = a.intervals_.begin();
  auto j = b.intervals_.begin();
  while (i != a.intervals_.end() && j != b.intervals_.end()) {
    const Interval both{std::max(i->begin, j->begin), std::min(i->end, j->end)};
    if (both.begin < both.end) out.intervals_.push_back(both);
    (i->end < j->end) ? ++i : ++j;
  }
  return out;
}

IntervalSet operator-(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet out;
  auto cut = b.intervals_.begin();
  for (Interval rest : a.intervals_) {
    while (cut != b.intervals_.end() && cut->end <= rest.begin) ++cut;
    for (auto c = cut; c != b.intervals_.end() && c->begin < rest.end; ++c) {
      if (rest.begin < c->begin) out.intervals_.push_back({rest.begin, c->begin});
      rest.begin = c->end;
      if (rest.begin >= rest.end) break;
    }
    if (rest.begin < rest.end) out.intervals_.push_back(rest);
  }
  return out;
}

}  // namespace harness
