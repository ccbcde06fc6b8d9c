// Where a symmetric distribution lies, from few values with heavy tails: Hodges and Lehmann's estimate with the
// interval that inverts Wilcoxon's signed-rank test. Log ratios of pairs whose arms could be exchanged are symmetric.
// 98 % and not 95 %: a verdict on equal programs should be wrong well below one time in twenty, also where somebody
// looks after each pair and stops when the interval is narrow. Source: M. Hollander, D. A. Wolfe, E. Chicken,
// Nonparametric Statistical Methods, 3rd ed., sections 3.1 to 3.3.
#pragma once
#include <cstdint>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

struct Location {
  double estimate = 0;       // median of the means of all two values, each with itself too
  double low = 0, high = 0;  // of those means, so that the coverage is at least 98 % (n <= 6: all of them)
  double coverage = 0;       // exact up to 100 values
  double half_width() const { return (high - low) / 2; }
};
// What counts as the same between pairs, where no A/A comparison says more: 1.5 %.
inline constexpr double kPairedMargin = 0.015;

// ln(b[i] / a[i]) of as many pairs as both have, without those in which a time is 0 or below: they say nothing.
std::vector<double> log_ratios(const std::vector<fsdp::Nanos>& a, const std::vector<fsdp::Nanos>& b);

// Finite values; none give zeros with coverage 0.
Location signed_rank_location(std::vector<double> values);

// Largest k with P(W < k) <= 1 %, W the signed-rank sum of n values; 0 if there is none (n <= 6).
std::int64_t signed_rank_critical(int n);

}  // namespace harness
