#include "harness/analysis/foreign_savings.h"

#include <algorithm>

namespace harness {

using fsdp::Nanos;

namespace {
constexpr std::size_t kMostPieces = 4096;  // beyond it, as if nothing came after: an upper bound still
}

void SavingBound::exposed(const DeviceOp& owner, int window, Nanos begin, Nanos end) {
  if (ended_) settle(launched_);
  if (!pieces_.empty() && pieces_.back().end == begin && pieces_.back().window == window &&
      pieces_.back().row.unit == owner.unit && pieces_.back().row.pass == owner.pass &&
      pieces_.back().row.collective == owner.collective) {
    pieces_.back().end = end;
    return;
  }
  if (pieces_.size() >= kMostPieces) settle(kNoTime);
  pieces_.push_back({{owner.unit, owner.pass, owner.collective}, window, begin, end});
}

// Of several operations that begin together the first launched counts.
void SavingBound::model(Nanos begin, Nanos launch_begin) {
  if (pieces_.empty()) return;
  if (ended_ && begin > end_) return settle(launched_);
  launched_ = ended_ ? std::min(launched_, launch_begin) : launch_begin;
  ended_ = true;
  end_ = begin;
}

void SavingBound::finish() { settle(ended_ ? launched_ : kNoTime); }

void SavingBound::settle(Nanos launched) {
  for (const Piece& p : pieces_) give(p, launched);
  pieces_.clear();
  ended_ = false;
}

void SavingBound::give(const Piece& p, Nanos launched) const {
  Saving s = p.row;
  s.exposed_ns = p.end - p.begin;
  s.saved_ns = p.end - std::clamp(launched, p.begin, p.end);
  sink_(p.window, s);
}

}  // namespace harness
