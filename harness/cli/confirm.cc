#include "harness/cli/confirm.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "fsdp/core/errors.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/runtime_limits.h"
#include "harness/sweep/text.h"
#include "harness/trial/trial.h"

namespace harness::cli {
namespace {

constexpr int kRounds = 2;
constexpr fsdp::Nanos kTime = 5'000'000'000;  // of the repetitions of one case in a round
constexpr int kFewest = 4, kMost = 6;

// A case and what became of it under PyTorch.
struct Confirmed {
  std::string label, reason;  // reason: why it gave no time
  std::optional<fsdp::Nanos> in_sweep;
  CaseSettings settings;
  std::vector<fsdp::Nanos> samples;
  SampleSummary step;  // of the samples
};

Confirmed confirmed(const CaseRecord& row, Runtime runtime, std::vector<std::string>& left_out) {
  Confirmed c;
  CaseRecord there = row;  // for its label, which names the runtime where that is an axis
  c.in_sweep = row.step_ns;
  c.settings = case_under(runtime, settings_of(row), left_out);
  c.settings.collectives = CollectivesKind::kAuto;  // Gloo or NCCL, by the device
  for (auto& [name, value] : there.axes)
    if (name == "runtime") value = setting_text(c.settings, "runtime");
  c.label = label_of(there);
  return c;
}

// One round; a case that did not run is not tried again.
void measure(Confirmed& c) {
  if (!c.reason.empty()) return;
  TrialOptions options;
  options.repeat = {.min = kFewest, .max = kMost, .relative_ci = 0.02, .time = kTime};
  options.trace = false;
  std::cerr << "confirming " << c.label << std::endl;
  const CaseRecord r = run_trial(c.settings, options);
  if (r.samples.empty()) c.reason = r.reason.empty() ? "gave no time" : r.reason;
  c.samples.insert(c.samples.end(), r.samples.begin(), r.samples.end());
}

std::string line_of(const Confirmed& c) {
  const std::string in_sweep = c.in_sweep ? ", in the sweep " + format_nanos(*c.in_sweep) : "";
  if (c.samples.empty()) return fmt::format("  {}: {}{}\n", c.label, c.reason, in_sweep);
  return fmt::format("  {}: {} a step ({} to {}){}\n", c.label, format_nanos(c.step.median),
                     format_nanos(c.step.ci_low), format_nanos(c.step.ci_high), in_sweep);
}

// How the recommended case, the first, stands to the others that ran.
std::string verdict(const std::vector<Confirmed>& all) {
  const Confirmed& chosen = all.front();
  if (chosen.samples.empty()) return "The recommended case does not run there: nothing is confirmed.\n";
  const Confirmed* rival = nullptr;  // the fastest other one
  std::vector<fsdp::Nanos> others;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].samples.empty()) continue;
    others.push_back(all[i].step.median);
    if (rival == nullptr || all[i].step.median < rival->step.median) rival = &all[i];
  }
  if (rival == nullptr) return "No runner-up runs there: there is nothing to compare with.\n";
  const double slower =
      100.0 * (static_cast<double>(rival->step.median) / static_cast<double>(chosen.step.median) - 1.0);
  const std::string by = fmt::format("{} is {:.1f} % {} than the recommended case", rival->label, std::abs(slower),
                                     slower < 0 ? "faster" : "slower");
  if (rival->step.ci_low <= chosen.step.ci_high && chosen.step.ci_low <= rival->step.ci_high)
    return "The choice is not told apart there: " + by + ", inside the intervals.\n";
  if (slower < 0) return "The choice does NOT hold there: " + by + ".\n";
  return fmt::format("The choice holds there: {}{}.\n", by,
                     std::is_sorted(others.begin(), others.end()) ? "" : "; the runners-up change places");
}

}  // namespace

std::string confirmation(const Recommendation& r, const std::vector<CaseRecord>& cases, Runtime runtime) {
  if (!r.best) return "";
  std::vector<std::size_t> chosen = {r.best->index};
  for (const Contender& c : r.runners_up) chosen.push_back(c.index);
  std::vector<Confirmed> all;
  std::vector<std::string> left_out;
  for (const std::size_t i : chosen) {
    if (cases[i].predicted)
      throw fsdp::ConfigError(
          "[--confirm] the cases are predictions for another machine; run the sweep there with --runtime fsdp2");
    all.push_back(confirmed(cases[i], runtime, left_out));
  }
  for (int round = 0; round < kRounds; ++round)
    for (Confirmed& c : all) measure(c);
  for (Confirmed& c : all)
    if (!c.samples.empty()) c.step = summarize(c.samples);
  std::sort(left_out.begin(), left_out.end());
  left_out.erase(std::unique(left_out.begin(), left_out.end()), left_out.end());
  std::string text =
      fmt::format("Run under PyTorch's own {} on this machine{}:\n", runtime == Runtime::kFsdp2 ? "FSDP2" : "FSDP1",
                  left_out.empty() ? "" : ", without " + fmt::format("{}", fmt::join(left_out, ", ")));
  for (const Confirmed& c : all) text += line_of(c);
  return text + verdict(all);
}

}  // namespace harness::cli
