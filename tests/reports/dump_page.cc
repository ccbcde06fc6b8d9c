// dump_page CASES FILE.html [hostile|two|clean|eight|predicted|compare|unlike]: writes the page of a synthetic sweep,
// or of a comparison of two; for the browser tests and for eyes.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "reports/compare_page.h"
#include "reports/html.h"
#include "tests/testing/synthetic_sweep.h"

namespace {

using testing_support::SyntheticSweep;

// The same cases as a cost model might have them: off by up to 12 %, on a machine of which something is known.
reports::ReportInput predicted(const SyntheticSweep& s) {
  reports::ReportInput out{s.sweep, s.cases};
  out.sweep.name = "the same, predicted";
  int index = 0;
  for (harness::CaseRecord& c : out.cases) {
    c.predicted = true, c.emulated = false;
    c.samples.clear(), c.spans.clear(), c.warnings.clear();
    for (auto& [name, value] : c.settings) {
      if (name == "device") value = "virtual";
    }
    if (c.step_ns) c.step_ns = *c.step_ns * (1000 + (++index * 53) % 211 - 90) / 1000;
    c.step_ci_low_ns.reset(), c.step_ci_high_ns.reset();
    c.environment["predicted_hardware"] = "cpu-2core";
    c.environment["predicted_error_median"] = "0.043";
    c.environment["predicted_error_source"] = "36 cases on the machine that calibrate measured";
  }
  return out;
}

// What a second run of the same sweep might give: some faster, some slower, some lost.
SyntheticSweep again(SyntheticSweep s) {
  int index = 0;
  for (harness::CaseRecord& c : s.cases) {
    const int change = (++index * 37) % 41 - 20;  // per cent
    for (fsdp::Nanos& ns : c.samples) ns += ns * change / 300;
    if (c.step_ns) c.step_ns = *c.step_ns + *c.step_ns * change / 300;
    if (index % 17 == 5) c.status = harness::Status::kCrashed, c.reason = "rank 1 ended by signal 9";
    c.environment["libtorch"] = "2.12.0";
  }
  s.cases.pop_back();
  return s;
}

std::string comparison_page(const SyntheticSweep& s, bool unlike) {
  harness::Side a{"out/before", "a", s.sweep, s.cases}, b{"out/after", "b", s.sweep, {}};
  const SyntheticSweep second = again(s);
  b.cases = second.cases;
  if (unlike) {
    for (harness::CaseRecord& c : b.cases) c.environment["cpu"] = "another CPU";
  }
  harness::CompareOptions options;
  options.gate = 0.03;
  const harness::Comparison c = harness::compare(a, b, options);
  std::cout << harness::comparison_text(c, a, b, options);
  return reports::compare_html(c, a, b, options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: dump_page CASES FILE.html [hostile|two|clean|eight|predicted|compare|unlike]\n";
    return 2;
  }
  const std::string how = argc > 3 ? argv[3] : "";
  testing_support::SyntheticOptions options;
  options.cases = std::atoi(argv[1]);
  options.failures = how != "clean";
  if (how == "eight") options.ranks = 8;
  auto sweep = testing_support::synthetic_sweep(options);
  if (how == "hostile" || (argc > 4 && std::string(argv[4]) == "hostile")) testing_support::make_hostile(sweep);
  std::ofstream page(argv[2]);
  if (how == "compare" || how == "unlike") {
    page << comparison_page(sweep, how == "unlike");
    return 0;
  }
  std::vector<reports::ReportInput> inputs{{sweep.sweep, sweep.cases}};
  if (how == "two") {
    options.cases = 10, options.ranks = 4, options.layers = 24;
    const auto second = testing_support::synthetic_sweep(options);
    inputs.push_back({second.sweep, second.cases});
    inputs.back().sweep.name = "the same on four ranks";
  }
  if (how == "predicted") inputs.push_back(predicted(sweep));
  page << reports::report_html(inputs);
  for (const auto& input : inputs) std::cout << reports::report_text(input);
  return 0;
}
