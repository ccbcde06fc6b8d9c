// Cliffs: where a curve over an ordered axis breaks, and which class of the partition grew there. Pure functions.
// A cliff lies between two neighbouring measured points when the slower is at least 10 % slower, their confidence
// intervals are disjoint, and (four points or more) the step is at least three times the median of the other steps: a
// break, not a slope. A step towards a point that does not fit is the boundary's business, not a cliff.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/analysis/partition.h"

namespace harness {

struct CurvePoint {
  std::string value;         // of the axis, as the user wrote it
  bool measured = false;     // ok or near_oom, and not predicted
  double y = 0;              // step time per unit of work (per step, or per token where the work varies along the axis)
  double low = 0, high = 0;  // confidence interval of y; [0, infinity] where there is none: nothing is told apart
  std::optional<Partition> partition;  // of a step; classes are compared per unit of work
  double work = 1;                     // units of work in a step: partition / work is comparable along the axis
  double contention_ns = 0;            // of a predicted step: what communication beside it added to computation
  std::string checkpoint;              // what is computed again
};

struct CliffCause {
  PartitionClass cls;
  double share = 0;  // of everything that grew
  std::string why;   // what that means for the reader
};
struct Cliff {
  std::size_t fast = 0, slow = 0;  // indices into the curve
  double ratio = 1;                // y(slow) / y(fast)
  std::vector<CliffCause> causes;  // one class, or the two largest where none has half ("mixed"); empty: no partitions
  bool gap_between = false;        // there are unmeasured points between the two
};

struct CliffRule {
  double least_ratio = 1.10;
  double times_median_step = 3;
};
std::vector<Cliff> find_cliffs(const std::vector<CurvePoint>& curve, const CliffRule& rule = {});

// What grew from the fast point to the slow one, per unit of work, the largest first. Compute stands for all compute,
// overlapped or not: time that only moved between the two did not grow.
struct Growth {
  struct Part {
    PartitionClass cls;
    double ns;  // > 0
  };
  std::vector<Part> parts;  // empty: no partitions, or nothing grew
  double total = 0;
  std::string compute_why;  // of computation that grew: recompute, contention, or neither
};
Growth growth_between(const CurvePoint& fast, const CurvePoint& slow);
// The same as causes: one class, or the two largest where none has half.
std::vector<CliffCause> causes_between(const CurvePoint& fast, const CurvePoint& slow);

// "root -> block is 2.1x faster (23.1 ms against 48.9 ms per step): exposed all-gather in forward fell by 12.0 ms, 71 %
// of the difference". `unit` names the unit of work ("step", "token").
std::string describe(const Cliff& cliff, const std::vector<CurvePoint>& curve, const std::string& unit);
// What growth of a class means for the reader: kHost -> "host-bound: ...; merge units", ... For computation see
// Growth::compute_why, which knows more.
std::string_view meaning_of(PartitionClass c);

}  // namespace harness
