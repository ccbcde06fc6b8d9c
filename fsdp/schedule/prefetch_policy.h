// PrefetchPolicy: (order, where we are, depth) -> which units to gather next. Pure functions.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "fsdp/core/types.h"

namespace fsdp {

// Fills `out` with the next `depth` units of `order`, from place `next` on, that have something to gather. A unit that
// never gathers is passed over and does not count, because a replicated norm between two blocks must not end the
// lookahead. The caller has to look whether a unit of the window is gathered already.
void prefetch_window(std::span<const UnitId> order, std::size_t next, int depth, std::span<const char> gathers,
                     std::vector<UnitId>& out);

// Records one pass and follows the record of the pass before it.
class PassOrder {
 public:
  // The user gives an order, which is followed as it is and never replaced. Visiting a unit that it does not name does
  // not move next(), which is before the order's first unit when a pass begins.
  void fix(std::vector<UnitId> order);

  void begin();
  // The next unit of the pass. Returns true when this is where the recorded order is left (once per pass).
  bool visit(UnitId unit);
  // Ends the pass; the order seen becomes the record. Returns true when the pass stopped short of the record.
  bool end();

  bool following() const { return following_; }
  bool fixed() const { return !fixed_.empty(); }
  bool at_first_unit() const { return visits_ <= 1; }  // nobody could have asked for its gather earlier
  std::span<const UnitId> order() const { return fixed_.empty() ? std::span<const UnitId>(recorded_) : fixed_; }
  std::size_t next() const { return next_; }  // place in order() behind the unit visited last

 private:
  std::vector<UnitId> fixed_, recorded_, seen_;
  bool following_ = false;
  std::size_t next_ = 0;
  int visits_ = 0;  // in this pass
};

}  // namespace fsdp
