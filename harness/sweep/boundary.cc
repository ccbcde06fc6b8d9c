#include "harness/sweep/boundary.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

bool fits(Fit f) { return f == Fit::kFits || f == Fit::kNear; }

// splitmix64: a reproducible order without a state of its own.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Fit fit_of(Status s) {
  switch (s) {
    case Status::kOk:
      return Fit::kFits;
    case Status::kNearOom:
      return Fit::kNear;
    case Status::kOom:
      return Fit::kDoesNot;
    default:
      return Fit::kUnknown;
  }
}

BoundarySearch::BoundarySearch(int count, std::optional<int> predicted)
    : count_(count),
      bound_(static_cast<int>(std::bit_width(static_cast<unsigned>(count - 1))) + 1),
      predicted_(predicted),
      seen_(static_cast<std::size_t>(count)) {
  SHARDSCOPE_CHECK(count >= 1, std::to_string(count));
}

int BoundarySearch::high() const {
  for (int i = 0; i < count_; ++i) {
    const auto& f = seen_[static_cast<std::size_t>(i)];
    if (f && !fits(*f)) return i;
  }
  return count_;
}

int BoundarySearch::low() const {
  for (int i = high() - 1; i >= 0; --i) {
    const auto& f = seen_[static_cast<std::size_t>(i)];
    if (f && fits(*f)) return i;
  }
  return -1;
}

std::optional<int> BoundarySearch::next() const {
  const int lo = low(), hi = high();
  if (hi - lo <= 1) return std::nullopt;
  // The answer is one of hi - lo positions. After this trial 2^(left - 1) of them can still be told apart.
  const int left = std::max(1, bound_ - trials_);
  const int reach = left > 30 ? count_ + 1 : 1 << (left - 1);
  const int from = std::max(lo + 1, hi - reach), to = std::min(hi - 1, lo + reach);
  int wish = lo + (hi - lo) / 2;
  if (predicted_) {
    const int p = std::clamp(*predicted_, -1, count_ - 1);
    // Both p and p + 1 have to be seen; first the one that leaves the shorter rest when it turns out as expected.
    const bool p_open = p > lo && p<hi, above_open = p + 1> lo && p + 1 < hi;
    if (p_open && above_open)
      wish = hi - p <= p + 1 - lo ? p : p + 1;
    else if (p_open)
      wish = p;
    else if (above_open)
      wish = p + 1;
  }
  return from <= to ? std::clamp(wish, from, to) : lo + (hi - lo) / 2;
}

void BoundarySearch::record(int index, Fit fit) {
  auto& f = seen_.at(static_cast<std::size_t>(index));
  if (!f) ++trials_;
  f = fit;
}

void BoundarySearch::check(int index, Fit fit) { checks_.emplace_back(index, fit); }

std::vector<int> BoundarySearch::skipped() const {
  std::vector<int> out;
  for (int i = 0; i < count_; ++i) {
    const bool checked = std::any_of(checks_.begin(), checks_.end(), [&](const auto& c) { return c.first == i; });
    if (!seen_[static_cast<std::size_t>(i)] && !checked) out.push_back(i);
  }
  return out;
}

std::vector<int> BoundarySearch::check_sample(int n, std::uint64_t seed) const {
  std::vector<int> below, above;
  for (const int i : skipped()) (i > high() ? above : below).push_back(i);
  const auto by_seed = [&](int a, int b) {
    return mixed(seed ^ static_cast<std::uint64_t>(a)) < mixed(seed ^ static_cast<std::uint64_t>(b));
  };
  std::sort(below.begin(), below.end(), by_seed);
  std::sort(above.begin(), above.end(), by_seed);
  std::vector<int> out;
  for (std::size_t k = 0; static_cast<int>(out.size()) < n && k < std::max(below.size(), above.size()); ++k) {
    if (k < above.size()) out.push_back(above[k]);
    if (k < below.size() && static_cast<int>(out.size()) < n) out.push_back(below[k]);
  }
  return out;
}

BoundaryResult BoundarySearch::result() const {
  BoundaryResult r;
  const int lo = low(), hi = high();
  if (lo >= 0) r.last_fit = lo;
  if (hi < count_) (seen_[static_cast<std::size_t>(hi)] == Fit::kUnknown ? r.blocked_by : r.first_oom) = hi;
  for (int i = 0; i <= lo && !r.first_near; ++i)
    if (seen_[static_cast<std::size_t>(i)] == Fit::kNear) r.first_near = i;
  std::vector<std::pair<int, Fit>> all = checks_;
  for (int i = 0; i < count_; ++i)
    if (const auto& f = seen_[static_cast<std::size_t>(i)]) all.emplace_back(i, *f);
  std::sort(all.begin(), all.end());
  for (const auto& [a, fa] : all)
    for (const auto& [b, fb] : all)
      if (a < b && fa == Fit::kDoesNot && fits(fb)) r.violations.emplace_back(a, b);
  r.trials = trials_;
  r.finished = hi - lo <= 1;
  return r;
}

std::optional<int> predict_from_peaks(const std::vector<double>& values,
                                      const std::vector<std::pair<int, fsdp::Bytes>>& peaks, fsdp::Bytes budget) {
  if (peaks.size() < 2) return std::nullopt;
  auto sorted = peaks;
  std::sort(sorted.begin(), sorted.end());
  const auto& [i, low] = sorted[sorted.size() - 2];
  const auto& [j, high] = sorted.back();
  const double x0 = values.at(static_cast<std::size_t>(i)), x1 = values.at(static_cast<std::size_t>(j));
  if (high <= low || x1 <= x0) return std::nullopt;
  const double slope = static_cast<double>(high - low) / (x1 - x0);
  const double largest = x1 + static_cast<double>(budget - high) / slope;
  int fit = -1;
  for (std::size_t k = 0; k < values.size(); ++k)
    if (values[k] <= largest) fit = static_cast<int>(k);
  return fit;
}

}  // namespace harness
