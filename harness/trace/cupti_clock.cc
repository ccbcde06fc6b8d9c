#include "harness/trace/cupti_clock.h"

#include <algorithm>
#include <cstdlib>

namespace harness {

using fsdp::Nanos;

ClockMap::ClockMap(std::vector<ClockSample> samples) : samples_(std::move(samples)) {
  std::sort(samples_.begin(), samples_.end(),
            [](const ClockSample& a, const ClockSample& b) { return a.cupti < b.cupti; });
  if (samples_.empty()) return;
  Nanos least = samples_.front().before - samples_.front().cupti,
        most = samples_.front().after - samples_.front().cupti;
  for (const ClockSample& s : samples_) {
    least = std::max(least, s.before - s.cupti);
    most = std::min(most, s.after - s.cupti);
  }
  if (least <= most) {
    constant_ = least + (most - least) / 2;
    error_ = (most - least + 1) / 2;
    return;
  }
  Nanos width = 0, change = 0;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    width = std::max(width, samples_[i].width());
    if (i > 0) change = std::max(change, std::abs(offset(i) - offset(i - 1)));
  }
  error_ = (width + 1) / 2 + (change + 1) / 2;
}

Nanos ClockMap::offset(std::size_t i) const {
  const ClockSample& s = samples_[i];
  return s.before + s.width() / 2 - s.cupti;
}

Nanos ClockMap::to_steady(Nanos t) const {
  if (constant_) return t + *constant_;
  if (samples_.empty()) return t;
  const auto after = std::upper_bound(samples_.begin(), samples_.end(), t,
                                      [](Nanos at, const ClockSample& s) { return at < s.cupti; });
  const auto i = static_cast<std::size_t>(after - samples_.begin());
  if (i == 0) return t + offset(0);
  if (i == samples_.size()) return t + offset(i - 1);
  const Nanos length = samples_[i].cupti - samples_[i - 1].cupti;
  const double share = length == 0 ? 0 : static_cast<double>(t - samples_[i - 1].cupti) / static_cast<double>(length);
  return t + offset(i - 1) + static_cast<Nanos>(share * static_cast<double>(offset(i) - offset(i - 1)));
}

Nanos ClockMap::drift() const { return samples_.empty() || constant_ ? 0 : offset(samples_.size() - 1) - offset(0); }

ClockSample narrowest(const std::vector<ClockSample>& tries) {
  const auto least = std::min_element(tries.begin(), tries.end(),
                                      [](const ClockSample& a, const ClockSample& b) { return a.width() < b.width(); });
  return least == tries.end() ? ClockSample{} : *least;
}

}  // namespace harness
