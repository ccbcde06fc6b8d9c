#include "fsdp/schedule/prefetch_policy.h"

#include <algorithm>

namespace fsdp {

void prefetch_window(std::span<const UnitId> order, std::size_t next, int depth, std::span<const char> gathers,
                     std::vector<UnitId>& out) {
  out.clear();
  for (std::size_t i = next; i < order.size() && static_cast<int>(out.size()) < depth; ++i)
    if (gathers[static_cast<std::size_t>(order[i])] != 0) out.push_back(order[i]);
}

void PassOrder::fix(std::vector<UnitId> order) { fixed_ = std::move(order); }

void PassOrder::begin() {
  seen_.clear();
  following_ = !order().empty();
  next_ = 0;
  visits_ = 0;
}

bool PassOrder::visit(UnitId unit) {
  ++visits_;
  if (!fixed_.empty()) {
    const auto it = std::find(fixed_.begin(), fixed_.end(), unit);
    if (it != fixed_.end()) next_ = static_cast<std::size_t>(it - fixed_.begin()) + 1;
    return false;
  }
  const std::size_t at = seen_.size();
  seen_.push_back(unit);
  next_ = at + 1;
  if (!following_) return false;
  following_ = at < recorded_.size() && recorded_[at] == unit;
  return !following_;
}

bool PassOrder::end() {
  if (!fixed_.empty()) return false;
  const bool short_of = following_ && seen_.size() < recorded_.size();
  if (!following_ || short_of) recorded_ = seen_;
  following_ = false;
  return short_of;
}

}  // namespace fsdp
