// The slowest of many ranks whose times vary alike and apart from each other: a synchronous step ends with it.
#pragma once

namespace harness {

// Quantile of the normal distribution, 0 < p < 1, to 1e-8.
double normal_quantile(double p);

// How many standard deviations the largest of `ranks` normal variables lies above their mean, in the mean: one maximum
// is one draw, u^(1/ranks), whatever the number of ranks. 0 for one rank.
double expected_maximum(int ranks);

}  // namespace harness
