// Contention: how much longer computation becomes because communication runs beside it. Of the time that communication
// spends beside computation a share `chi` is added to the computation, at most as much as the computation itself:
// a stretch of computation x with communication k beside it lasts x + chi * min(k, x). What a stretch did not pay for
// is owed by the next one, whatever gap lies between: else schedules with small gaps would be let off.
#pragma once
#include <deque>

#include "fsdp/core/types.h"

namespace harness {

class Contention {
 public:
  explicit Contention(double chi) : chi_(chi) {}
  // In any order. `weight`: share of the time in which the device itself is as busy with it as with
  // communication inside a node.
  void communication(fsdp::Nanos begin, fsdp::Nanos end, double weight = 1);
  // Added to a computation that would run for `cost` from `begin`; in order of their begin.
  fsdp::Nanos extra(fsdp::Nanos begin, fsdp::Nanos cost);

 private:
  struct Interval {
    fsdp::Nanos begin, end;
    double weight;
  };
  double overlap(fsdp::Nanos begin, fsdp::Nanos end);

  double chi_;
  std::deque<Interval> wire_;
  fsdp::Nanos seen_ = 0;   // communication up to here has been looked at
  fsdp::Nanos since_ = 0;  // begin of this stretch of computation
  fsdp::Nanos busy_ = 0;   // end of the last computation
  double debt_ = 0;        // communication beside this stretch of computation that has not been paid for
};

}  // namespace harness
