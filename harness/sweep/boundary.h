// BoundarySearch: the largest value of a monotone setting that fits in memory, by bisection over a declared list of
// values. Pure: it says which value to try next and is told what became of it.
//
// At most ceil(log2(n)) + 1 trials for n values, with or without a prediction: a predicted boundary decides where to
// look first (two trials when it is right) and is followed only as far as that bound still holds afterwards. Both ends
// of the boundary are measured. What contradicts the order is reported as a violation, never smoothed over.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/store/records.h"

namespace harness {

enum class Fit : std::uint8_t {
  kFits,
  kNear,     // fits, near the limit
  kDoesNot,  // out of memory
  kUnknown,  // crashed, timed out, ...: no evidence of either; the search goes on below it and says so
};
Fit fit_of(Status s);

struct BoundaryResult {
  std::optional<int> last_fit;    // indices into the values
  std::optional<int> first_oom;   // absent: everything tried fits
  std::optional<int> first_near;  // smallest value measured as near_oom below the boundary
  std::optional<int> blocked_by;  // the value above the boundary ended with kUnknown: the boundary is a lower bound
  std::vector<std::pair<int, int>> violations;  // (does not fit, fits all the same although larger)
  int trials = 0;                               // told by record(), checks not counted
  bool finished = false;
};

class BoundarySearch {
 public:
  // `count` values in the order of growing memory; `predicted`: index of the largest value expected to fit, -1: none.
  explicit BoundarySearch(int count, std::optional<int> predicted = std::nullopt);

  int bound() const { return bound_; }  // of trials
  void predict(int largest_fit) { predicted_ = largest_fit; }
  std::optional<int> next() const;   // std::nullopt: done
  void record(int index, Fit fit);   // in any order; stored results of an earlier run too
  void check(int index, Fit fit);    // the same for a value that the rule had skipped: it cannot move the boundary
  std::vector<int> skipped() const;  // values never tried
  // At most n skipped values to run after all, in turns above and below the boundary; the same seed, the same values.
  std::vector<int> check_sample(int n, std::uint64_t seed) const;
  BoundaryResult result() const;

 private:
  int low() const;   // largest fit below the smallest failure; -1: none
  int high() const;  // smallest failure; count: none
  int count_, bound_, trials_ = 0;
  std::optional<int> predicted_;
  std::vector<std::optional<Fit>> seen_;
  std::vector<std::pair<int, Fit>> checks_;
};

// The index of the largest value that should fit: a line through the peaks of the two largest measured values. Absent
// with fewer than two, or when memory does not grow.
std::optional<int> predict_from_peaks(const std::vector<double>& values,
                                      const std::vector<std::pair<int, fsdp::Bytes>>& peaks, fsdp::Bytes budget);

}  // namespace harness
