// The least sum of soft-L1 losses of ln(predicted/measured) over five constants: a simplex search in their logarithms.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "harness/cost/step_formula.h"

namespace bench {

struct Row {
  std::string id, source, role, model, gpu, network;
  bool compiled = false;
  harness::StepCase c;
  double seconds = 0;
};
std::vector<Row> read_rows(const std::string& path);

class Predictor {
 public:
  double seconds(const Row& row, const harness::StepConstants& k);

 private:
  std::vector<std::pair<std::string, harness::CostModel>> models_;  // by GPU, network and world
};

harness::StepConstants fit(const std::vector<const Row*>& rows, Predictor& predictor);

struct Errors {
  double median = 0, p90 = 0, worst = 0;
  std::size_t rows = 0;
};
Errors errors_of(std::vector<double> ratios);  // predicted over measured

// Correlation of ranks.
double spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace bench
