#include "harness/cost/contention.h"

#include <algorithm>
#include <cmath>

namespace harness {

void Contention::communication(fsdp::Nanos begin, fsdp::Nanos end, double weight) {
  if (chi_ <= 0 || end <= begin) return;
  weight = std::min(weight, 1.0);
  // A host that runs ahead issues it when computation that it runs beside has been charged: that is owed.
  const fsdp::Nanos known = std::min(end, seen_);
  if (const fsdp::Nanos from = std::max(begin, since_); known > from)
    debt_ += weight * static_cast<double>(known - from);
  if (end > seen_) wire_.push_back({std::max(begin, seen_), end, weight});
}

// Time of communication within [begin, end), each instant once.
double Contention::overlap(fsdp::Nanos begin, fsdp::Nanos end) {
  while (!wire_.empty() && wire_.front().end <= begin) wire_.pop_front();
  double sum = 0;
  fsdp::Nanos at = begin;
  for (const Interval& i : wire_) {
    const fsdp::Nanos from = std::max(at, i.begin), to = std::min(end, i.end);
    if (to <= from) continue;
    sum += i.weight * static_cast<double>(to - from);
    at = to;
  }
  return sum;
}

fsdp::Nanos Contention::extra(fsdp::Nanos begin, fsdp::Nanos cost) {
  if (chi_ <= 0 || cost <= 0) return 0;
  if (begin > busy_) {  // there was a gap: what was communicated in it ran beside nothing
    if (busy_ > seen_) debt_ += overlap(seen_, busy_);
    seen_ = since_ = begin;
  }
  const fsdp::Nanos end = begin + cost;
  debt_ += overlap(seen_, end);
  seen_ = end;
  const double paid = std::min(debt_, static_cast<double>(cost));
  debt_ -= paid;
  const auto more = static_cast<fsdp::Nanos>(std::llround(chi_ * paid));
  busy_ = end + more;
  return more;
}

}  // namespace harness
