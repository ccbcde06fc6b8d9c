// Interval algebra on integer nanoseconds. Intervals are half-open, [begin, end); length 0 or less contributes nothing;
// touching intervals merge.
#pragma once
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

struct Interval {
  fsdp::Nanos begin = 0, end = 0;
  fsdp::Nanos length() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// A set of instants, kept as sorted, disjoint, non-touching, non-empty intervals.
class IntervalSet {
 public:
  IntervalSet() = default;
  explicit IntervalSet(std::vector<Interval> any);  // any order, overlapping, touching, empty or reversed ones

  const std::vector<Interval>& intervals() const { return intervals_; }
  bool empty() const { return intervals_.empty(); }
  fsdp::Nanos length() const;
  bool contains(fsdp::Nanos t) const;
  IntervalSet clipped(fsdp::Nanos begin, fsdp::Nanos end) const;
  // Length of the part inside [begin, end); O(log n + hits).
  fsdp::Nanos length_within(fsdp::Nanos begin, fsdp::Nanos end) const;

  friend IntervalSet operator|(const IntervalSet& a, const IntervalSet& b);
  friend IntervalSet operator&(const IntervalSet& a, const IntervalSet& b);
  friend IntervalSet operator-(const IntervalSet& a, const IntervalSet& b);
  friend bool operator==(const IntervalSet&, const IntervalSet&) = default;

 private:
  std::vector<Interval> intervals_;
};

}  // namespace harness
