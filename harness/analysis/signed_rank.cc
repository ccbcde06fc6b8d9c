#include "harness/analysis/signed_rank.h"

#include <algorithm>
#include <cmath>

namespace harness {
namespace {

constexpr double kTail = 0.01, kTailQuantile = 2.326348;
constexpr int kMostExact = 100;

// P(W = w) for w up to its mean: W adds each rank 1..n with probability 1/2.
std::vector<double> lower_half(int n) {
  std::vector<double> p(static_cast<std::size_t>(n) * (n + 1) / 4 + 1, 0.0);
  p[0] = 1;
  for (int rank = 1; rank <= n; ++rank) {
    for (std::size_t w = p.size(); w-- > 0;) {
      p[w] /= 2;
      if (w >= static_cast<std::size_t>(rank)) p[w] += p[w - rank] / 2;
    }
  }
  return p;
}

double tail_below(int n, std::int64_t k) {
  if (n > kMostExact) return kTail;
  const std::vector<double> p = lower_half(n);
  double sum = 0;
  for (std::int64_t w = 0; w < k; ++w) sum += p[static_cast<std::size_t>(w)];
  return sum;
}

// Of the n (n + 1) / 2 means of two sorted values: how many are at most t.
std::int64_t means_up_to(const std::vector<double>& x, double t) {
  std::int64_t count = 0;
  std::size_t j = x.size();  // x[i] and what is before j have a mean of at most t
  for (std::size_t i = 0; i < x.size(); ++i) {
    while (j > i && (x[i] + x[j - 1]) / 2 > t) --j;
    if (j <= i) break;
    count += static_cast<std::int64_t>(j - i);
  }
  return count;
}

// The k-th smallest of the means, k from 1: halves the range until two neighbouring numbers are left.
double kth_mean(const std::vector<double>& x, std::int64_t k) {
  double below = x.front(), at = x.back();
  if (means_up_to(x, below) >= k) return below;
  while (true) {
    const double middle = below + (at - below) / 2;
    if (middle <= below || middle >= at) return at;
    (means_up_to(x, middle) >= k ? at : below) = middle;
  }
}

}  // namespace

std::int64_t signed_rank_critical(int n) {
  if (n > kMostExact) {
    const double m = n, mean = m * (m + 1) / 4, sigma = std::sqrt(m * (m + 1) * (2 * m + 1) / 24);
    return static_cast<std::int64_t>(std::floor(mean - kTailQuantile * sigma));
  }
  const std::vector<double> p = lower_half(n);
  double sum = 0;
  std::int64_t k = 0;
  for (; k < static_cast<std::int64_t>(p.size()); ++k) {
    sum += p[static_cast<std::size_t>(k)];
    if (sum > kTail) break;
  }
  return k;
}

std::vector<double> log_ratios(const std::vector<fsdp::Nanos>& a, const std::vector<fsdp::Nanos>& b) {
  std::vector<double> out;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] > 0 && b[i] > 0) out.push_back(std::log(static_cast<double>(b[i]) / static_cast<double>(a[i])));
  return out;
}

Location signed_rank_location(std::vector<double> values) {
  Location out;
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  const int n = static_cast<int>(values.size());
  const std::int64_t means = static_cast<std::int64_t>(n) * (n + 1) / 2;
  const std::int64_t k = std::max<std::int64_t>(1, signed_rank_critical(n));
  out.estimate = (kth_mean(values, (means + 1) / 2) + kth_mean(values, means / 2 + 1)) / 2;
  out.low = kth_mean(values, k);
  out.high = kth_mean(values, means + 1 - k);
  out.coverage = 1 - 2 * tail_below(n, k);
  return out;
}

}  // namespace harness
