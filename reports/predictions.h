// Predictions beside measurements: which predicted case of the page has a measured one with the same settings.
#pragma once
#include <cstddef>
#include <vector>

#include "reports/shape.h"

namespace reports {

struct CasePlace {
  std::size_t sweep = 0, index = 0;  // into the inputs and their cases
};
struct PredictedPair {
  CasePlace predicted, measured;
};
// Settings must be equal but for those that say where a case ran (device, hardware, seed). Pairs stand in the order of
// the predicted cases; each has its first measured partner.
std::vector<PredictedPair> predicted_pairs(const std::vector<ReportInput>& inputs);

}  // namespace reports
