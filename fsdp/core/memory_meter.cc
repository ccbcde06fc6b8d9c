#include "fsdp/core/memory_meter.h"

#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/core/sizes.h"

namespace fsdp {

std::string_view name_of(MemoryCategory c) {
  switch (c) {
    case MemoryCategory::kParameters:
      return "parameters";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kOptimizer:
      return "optimizer state";
    case MemoryCategory::kUnsharded:
      return "unsharded parameters";
    case MemoryCategory::kReduce:
      return "reduce buffers";
    case MemoryCategory::kActivations:
      return "activations";
    case MemoryCategory::kOther:
      return "other";
  }
  return "?";
}

void MemoryMeter::add(Bytes n, MemoryCategory c) {
  if (budget_ != kNoBudget && live_ + n > budget_) {
    const std::string cause = describe(context_, c);
    throw OutOfMemory("[memory] " + cause + ": a request of " + readable_bytes(n) + " on top of " +
                          readable_bytes(live_) + " passes the budget of " + readable_bytes(budget_),
                      cause, n, live_, budget_);
  }
  const auto i = static_cast<std::size_t>(c);
  live_ += n;
  by_[i] += n;
  peak_by_[i] = std::max(peak_by_[i], by_[i]);
  if (live_ > peak_.total) peak_ = {live_, by_, context_};
  if (observer_) observer_->added(n, c);
}

void MemoryMeter::sub(Bytes n, MemoryCategory c) {
  live_ -= n;
  by_[static_cast<std::size_t>(c)] -= n;
  if (observer_) observer_->removed(n, c);
}

void MemoryMeter::reset_peak() {
  peak_ = {live_, by_, context_};
  peak_by_ = by_;
}

std::string MemoryMeter::describe(MemoryContext where, MemoryCategory c) const {
  std::string unit = where.unit == kNoUnit ? std::string("no unit")
                     : namer_              ? namer_(namer_self_, where.unit)
                                           : "unit " + std::to_string(where.unit);
  return unit + ", " + std::string(where.pass == Pass::kNone ? "outside a pass" : name_of(where.pass)) + ", " +
         std::string(name_of(c));
}

std::string MemoryMeter::peak_cause() const {
  const auto largest = std::max_element(peak_.at_peak.begin(), peak_.at_peak.end());
  return describe(peak_.where, static_cast<MemoryCategory>(largest - peak_.at_peak.begin()));
}

}  // namespace fsdp
