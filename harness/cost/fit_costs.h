// From measured times to the costs of a hardware file. Plain C++.
#pragma once
#include <string>
#include <vector>

#include "harness/cost/hardware.h"
#include "harness/cost/op_work.h"

namespace harness {

struct OpSample {
  std::string name;
  OpWork work;
  double us = 0;
  double cold = 0;  // cold_share of the step it was part of
};
struct CollectiveSample {
  int devices = 2;
  double sent_bytes = 0;  // by a rank, ring
  double us = 0;
};

// Costs by operator name, and for each kind from all its operators: least soft-L1 loss of ln(predicted/measured).
std::map<std::string, OpCost> fit_ops(const std::vector<OpSample>& samples);
// One curve from samples of one number of devices.
CollectiveCurve fit_curve(const std::vector<CollectiveSample>& samples);

}  // namespace harness
