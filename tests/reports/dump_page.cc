// dump_page CASES FILE.html [hostile|two|clean]: writes the page of a synthetic sweep; for the browser tests and for
// eyes.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "reports/html.h"
#include "tests/testing/synthetic_sweep.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: dump_page CASES FILE.html [hostile|two|clean]\n";
    return 2;
  }
  const std::string how = argc > 3 ? argv[3] : "";
  testing_support::SyntheticOptions options;
  options.cases = std::atoi(argv[1]);
  options.failures = how != "clean";
  auto sweep = testing_support::synthetic_sweep(options);
  if (how == "hostile") testing_support::make_hostile(sweep);
  std::vector<reports::ReportInput> inputs{{sweep.sweep, sweep.cases}};
  if (how == "two") {
    options.cases = 10, options.ranks = 4, options.layers = 24;
    const auto second = testing_support::synthetic_sweep(options);
    inputs.push_back({second.sweep, second.cases});
    inputs.back().sweep.name = "the same on four ranks";
  }
  std::ofstream(argv[2]) << reports::report_html(inputs);
  for (const auto& input : inputs) std::cout << reports::report_text(input);
  return 0;
}
