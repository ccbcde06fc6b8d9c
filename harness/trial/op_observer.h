// OpObserver: hears of every leaf operator that this thread runs while the scope lives, forward and backward, with the
// shapes of its arguments and results. An operator inside another is part of it; composites are not heard of. Torch
// room; no torch in this header.
#pragma once
#include <memory>

#include "harness/cost/op_work.h"

namespace harness {

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  // Immediately before and after it runs.
  virtual void begins() {}
  virtual void ended() {}
  // After both, with what it saw. May throw; the exception leaves the operator.
  virtual void ran(const OpCall& call) = 0;
};

// One at a time on a thread; `observer` outlives it.
class OpObserverScope {
 public:
  explicit OpObserverScope(OpObserver& observer);
  ~OpObserverScope();
  OpObserverScope(const OpObserverScope&) = delete;
  OpObserverScope& operator=(const OpObserverScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace harness
