// The least sum of soft-L1 losses of ln(predicted/measured) of step times and of ratios of pairs that differ in one
// setting, over seven constants: a simplex search, within their physical bounds.
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

// Two settings of one job, and how their step times compare.
struct Decision {
  std::string id, kind, gpu;
  std::string network;
  std::string need;  // "size", "sign" or "list"
  harness::StepCase from, to;
  double ratio = 1, noise = 0;  // time of `to` over that of `from`
};
// Those that the closed form can tell.
std::vector<Decision> read_decisions(const std::string& path);

class Predictor {
 public:
  double seconds(const Row& row, const harness::StepConstants& k);
  double ratio(const Decision& d, const harness::StepConstants& k);

 private:
  double seconds(const harness::StepCase& c, const std::string& gpu, const std::string& network,
                 const harness::StepConstants& k);
  std::vector<std::pair<std::string, harness::CostModel>> models_;  // by GPU, network and world
};

// Step times leave contention open, since they do not tell it from bytes: it is the same for all, chosen among a few by
// what times and decisions lose together.
struct FitOptions {
  double contention = 0.2, jitter = 0;  // kept
  bool as_before = false;               // contention free and unbounded, no bytes for parameters, no boundary of a step
};
harness::StepConstants fit(const std::vector<const Row*>& rows, const std::vector<const Decision*>& decisions,
                           Predictor& predictor, const FitOptions& options);
// What the fit makes least.
double loss_of(const std::vector<const Row*>& rows, const std::vector<const Decision*>& decisions, Predictor& predictor,
               const harness::StepConstants& k);

struct Errors {
  double median = 0, p90 = 0, worst = 0;
  std::size_t rows = 0;
};
Errors errors_of(std::vector<double> ratios);  // predicted over measured

// Correlation of ranks.
double spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace bench
