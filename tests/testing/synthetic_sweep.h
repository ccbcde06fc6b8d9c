// Sweeps that no machine has run: records with the shape of real ones, of any size, with every status, for reports and
// stores.
#pragma once
#include <cstdint>
#include <vector>

#include "harness/store/records.h"

namespace testing_support {

struct SyntheticSweep {
  harness::SweepRecord sweep;
  std::vector<harness::CaseRecord> cases;
};

struct SyntheticOptions {
  int cases = 40;  // the first so many of the product of the axes
  int ranks = 2;
  int layers = 12;
  bool spans = true;
  bool failures = true;  // now and then a crash, a time-out, ... (out of memory comes from the budget alone)
  std::int64_t budget_bytes = 420 << 20;
};

// The same options give the same records. Times follow a small schedule (gather, compute, reduce, one wire), so
// partitions, memory and spans agree with each other.
SyntheticSweep synthetic_sweep(const SyntheticOptions& options);

// Replaces names, reasons and values with what a page must survive: markup, quotes, 10 kB, emoji, right-to-left, bytes
// that are not UTF-8.
void make_hostile(SyntheticSweep& s);

}  // namespace testing_support
