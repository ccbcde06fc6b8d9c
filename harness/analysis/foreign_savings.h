// The same question for traces made elsewhere, where no waits are known: an upper bound, in one pass. Of the time
// exposed to a collective before the next model operation, what lies after that operation's launch call began could be
// saved; what lies before it the host would have cost anyway. Where the host itself computes (host_lanes.h) it waits
// for what is exposed: all of that could be saved.
#pragma once
#include <functional>
#include <vector>

#include "harness/analysis/device_trace.h"
#include "harness/analysis/savings.h"

namespace harness {

class SavingBound {
 public:
  // `window` is given back with what was charged in it.
  using Sink = std::function<void(int window, const Saving&)>;
  explicit SavingBound(Sink sink) : sink_(std::move(sink)) {}

  // In time order, both: an exposed piece; a compute or optimizer operation that begins at `begin`.
  void exposed(const DeviceOp& owner, int window, fsdp::Nanos begin, fsdp::Nanos end);
  void model(fsdp::Nanos begin, fsdp::Nanos launch_begin);
  void finish();  // nothing comes after what is left: it could be saved whole

 private:
  struct Piece {
    Saving row;
    int window;
    fsdp::Nanos begin, end;
  };
  void settle(fsdp::Nanos launched);
  void give(const Piece& p, fsdp::Nanos launched) const;

  Sink sink_;
  std::vector<Piece> pieces_;  // since the last model operation
  bool ended_ = false;         // by model operations that begin at end_
  fsdp::Nanos end_ = 0, launched_ = 0;
};

}  // namespace harness
