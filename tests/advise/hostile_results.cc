// hostile_results DIR PLAN: writes DIR/results.db with three cases in which every free text is what standard input
// holds; the fastest is wrapped by the plan file PLAN. The input of generated_text_test.py.
#include <iostream>
#include <iterator>

#include "harness/analysis/statistics.h"
#include "harness/store/store.h"
#include "harness/sweep/settings.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  harness::Store store = harness::Store::open_for_writing(argv[1]);
  const std::pair<std::string, fsdp::Nanos> wraps[] = {
      {"plan:" + std::string(argv[2]), 10'000'000}, {"block", 12'000'000}, {"root", 20'000'000}};
  harness::SweepRecord sweep;
  sweep.name = sweep.command = sweep.spec_text = text;
  sweep.environment["cpu"] = text;
  sweep.axes = {{"wrap", {}}, {"hardware", {text}}};
  for (const auto& [wrap, step] : wraps) sweep.axes[0].second.push_back(wrap == "root" ? "root" + text : wrap);
  store.write_sweep(sweep);
  for (const auto& [wrap, step] : wraps) {
    harness::CaseSettings c;
    harness::apply_setting(c, "wrap", wrap);
    harness::CaseRecord r;
    r.id = "case-" + std::to_string(step);
    r.settings = harness::all_settings(c);
    for (auto& [name, value] : r.settings)
      if (name == "hardware") value = text;  // a preset of another version, or nothing that was ever one
    r.axes = {{"wrap", wrap == "root" ? "root" + text : wrap}, {"hardware", text}};
    r.status = wrap == "root" ? harness::Status::kNearOom : harness::Status::kOk;
    r.reason = r.peak_cause = r.environment["host"] = text;
    r.warnings = {text};
    for (int i = -3; i <= 3; ++i) r.samples.push_back(step + step * i / 1000);
    const harness::SampleSummary s = harness::summarize(r.samples);
    r.step_ns = s.median, r.step_ci_low_ns = s.ci_low, r.step_ci_high_ns = s.ci_high, r.ci_coverage = s.coverage;
    r.peak_bytes = 20'000'000;
    r.unit_table.push_back({text, 1000, 4000, 2000, 4000, "full_shard"});
    r.units = 1;
    store.write_case(r);
  }
  return 0;
}
