#include "harness/cost/straggler.h"

#include <cmath>

namespace harness {

double normal_quantile(double p) {
  double low = -40, high = 40;  // bisection: exact enough, and asked for a few hundred times
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double expected_maximum(int ranks) {
  if (ranks <= 1) return 0;
  constexpr int kDraws = 512;  // stratified: one in each slice, so that no seed matters
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = (i + 0.5) / kDraws;
    // u^(1/ranks) is close to 1: the upper tail keeps its digits.
    const double tail = -std::expm1(std::log(u) / ranks);
    sum -= normal_quantile(tail);
  }
  return sum / kDraws;
}

}  // namespace harness
