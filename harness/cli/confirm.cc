#include "harness/cli/confirm.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "fsdp/core/errors.h"
#include "harness/sweep/quantities.h"
#include "harness/trial/trial.h"

namespace harness::cli {
namespace {

constexpr int kRounds = 2;
constexpr fsdp::Nanos kTime = 5'000'000'000;  // of the repetitions of one case in a round
constexpr int kFewest = 4, kMost = 6;

struct Measured {
  std::string label, reason;
  std::optional<fsdp::Nanos> here;  // step of the sweep's own row
  std::vector<fsdp::Nanos> samples;
  std::optional<fsdp::Nanos> step, low, high;
};

// What PyTorch's ranks cannot be asked for, and what does not decide between cases of one workload.
CaseSettings without_counterpart(CaseSettings c, Runtime runtime, std::string& left_out) {
  const CaseSettings before = c;
  c.wire.reset();
  c.memory_budget = CaseSettings().memory_budget;
  c.collectives = CollectivesKind::kAuto;
  c.reduce_scatter_slots = CaseSettings().reduce_scatter_slots;
  c.reduce_scatter_communicator = CaseSettings().reduce_scatter_communicator;
  c.prefetch_order.reset();
  c.max_inflight.reset();
  left_out.clear();
  for (const char* name : {"wire", "memory_budget", "reduce_scatter_slots", "reduce_scatter_communicator",
                           "prefetch_order", "max_inflight"}) {
    if (setting_text(before, name) != setting_text(c, name))
      left_out += (left_out.empty() ? "" : ", ") + std::string(name) + " " + setting_text(before, name);
  }
  c.runtime = runtime;
  return c;
}

// One round of a case; a case that did not run is not tried again.
void measure(Measured& m, const CaseRecord& row, Runtime runtime, std::string& left_out) {
  if (!m.reason.empty()) return;
  const CaseSettings settings = without_counterpart(settings_of(row), runtime, left_out);
  TrialOptions options;
  options.repeat = {.min = kFewest, .max = kMost, .relative_ci = 0.02, .time = kTime};
  options.trace = false;
  std::cerr << "confirming " << m.label << " under " << setting_text(settings, "runtime") << std::endl;
  const CaseRecord r = run_trial(settings, options);
  if (r.samples.empty()) m.reason = r.reason.empty() ? "gave no time" : r.reason;
  m.samples.insert(m.samples.end(), r.samples.begin(), r.samples.end());
}

void take_together(Measured& m) {
  if (m.samples.empty()) return;
  const SampleSummary s = summarize(m.samples);
  m.step = s.median, m.low = s.ci_low, m.high = s.ci_high;
}

std::string line_of(const Measured& m) {
  const std::string here = m.here ? ", in the sweep " + format_nanos(*m.here) : "";
  if (!m.step) return fmt::format("  {}: {}{}\n", m.label, m.reason, here);
  return fmt::format("  {}: {} a step ({} to {}){}\n", m.label, format_nanos(*m.step), format_nanos(*m.low),
                     format_nanos(*m.high), here);
}

// Says how the fastest of those that ran stands to the one that was recommended.
std::string verdict(const std::vector<Measured>& all) {
  const Measured& best = all.front();
  if (!best.step) return "The recommended case does not run there: nothing is confirmed.\n";
  const Measured* fastest = &best;
  std::size_t ran = 0;
  for (const Measured& m : all) {
    if (!m.step) continue;
    ++ran;
    if (*m.step < *fastest->step) fastest = &m;
  }
  if (ran < 2) return "No runner-up runs there: nothing to compare with.\n";
  if (fastest == &best) {
    std::vector<fsdp::Nanos> others;
    for (std::size_t i = 1; i < all.size(); ++i)
      if (all[i].step) others.push_back(*all[i].step);
    return fmt::format("The choice holds: the recommended case is the fastest there too{}.\n",
                       std::is_sorted(others.begin(), others.end()) ? "" : "; the runners-up change places");
  }
  const double less = 100.0 * (1.0 - static_cast<double>(*fastest->step) / static_cast<double>(*best.step));
  if (*fastest->high >= *best.low)
    return fmt::format("The choice is not told apart there: {} is {:.1f} % faster, inside the intervals.\n",
                       fastest->label, less);
  return fmt::format("The choice does NOT hold there: {} is {:.1f} % faster than the recommended case.\n",
                     fastest->label, less);
}

}  // namespace

std::string confirmation(const Recommendation& r, const std::vector<CaseRecord>& cases, Runtime runtime) {
  if (!r.best) return "";
  std::vector<std::size_t> chosen = {r.best->index};
  for (const Contender& c : r.runners_up) chosen.push_back(c.index);
  std::vector<Measured> all;
  std::string left_out;
  for (const std::size_t i : chosen) {
    if (cases[i].predicted)
      throw fsdp::ConfigError(
          "[--confirm] the cases are predictions for another machine; run the sweep there with --runtime fsdp2");
    Measured& m = all.emplace_back();
    m.label = label_of(cases[i]), m.here = cases[i].step_ns;
  }
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < all.size(); ++i) measure(all[i], cases[chosen[i]], runtime, left_out);
  for (Measured& m : all) take_together(m);
  std::string text =
      fmt::format("Run under PyTorch's own {} on this machine{}:\n", runtime == Runtime::kFsdp2 ? "FSDP2" : "FSDP1",
                  left_out.empty() ? "" : ", without " + left_out);
  for (const Measured& m : all) text += line_of(m);
  return text + verdict(all);
}

}  // namespace harness::cli
