#include "harness/cli/case_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"
#include "harness/workload/model_settings.h"
#include "reports/text.h"

namespace harness::cli {
namespace {

constexpr int kBarWidth = 32;

std::string setting_of(const CaseRecord& r, const char* name) {
  const std::string* value = reports::setting(r, name);
  return value ? *value : "?";
}

std::string unit_name(const CaseRecord& r, fsdp::UnitId unit) {
  if (unit < 0) return "-";
  const auto i = static_cast<std::size_t>(unit);
  return i < r.unit_table.size() ? r.unit_table[i].name : fmt::format("unit {}", unit);
}

std::string head(const CaseRecord& r) {
  std::string out =
      fmt::format("case     {}   {}{}\n", r.id, name_of(r.status), r.reason.empty() ? "" : ": " + r.reason);
  out += fmt::format("model    {}, {} ranks, wrap {}, {}\n", model_name(setting_of(r, "model")), setting_of(r, "world"),
                     setting_of(r, "wrap"), setting_of(r, "strategy"));
  if (r.units)
    out += fmt::format("units    {}, the largest {}\n", *r.units, format_bytes(r.largest_unit_bytes.value_or(0)));
  if (r.emulated) out += fmt::format("wire     {} (emulated)\n", setting_of(r, "wire"));
  return out;
}

std::string environment_of(const CaseRecord& r, const char* key) {
  const auto at = r.environment.find(key);
  return at == r.environment.end() ? "" : at->second;
}

double environment_number(const CaseRecord& r, const char* key) {
  return std::strtod(environment_of(r, key).c_str(), nullptr);
}

// What a prediction stands on. Memory is counted, times are modelled.
std::string prediction(const CaseRecord& r) {
  if (!r.predicted) return "";
  const std::string hardware = environment_of(r, "predicted_hardware"),
                    network = environment_of(r, "predicted_network");
  if (hardware.empty()) return "";
  std::string out = fmt::format("predicted for {}{}: memory is that of this program's own run, times are modelled",
                                hardware, network.empty() ? "" : ", across nodes " + network);
  if (const double error = environment_number(r, "predicted_error_median"); error > 0) {
    out += fmt::format("; median error {:.0f} % ({})", 100 * error, environment_of(r, "predicted_error_source"));
  } else {
    out += "; no measured run has been compared";
  }
  out += "\n";
  if (const double low = environment_number(r, "predicted_step_low"); low > 0)
    out += fmt::format(
        "uncalibrated: no step time binds this hardware's constants, which are another GPU's; the step lies "
        "between {:.2f} and {:.2f} times what is predicted where that was tried\n",
        low, environment_number(r, "predicted_step_high"));
  if (const double late = environment_number(r, "predicted_straggler_ns"); late > 0)
    out += fmt::format("of the first collective's wait, {} is for the slowest of {} ranks\n",
                       format_nanos(static_cast<fsdp::Nanos>(late)), environment_of(r, "predicted_ranks"));
  if (const std::string assumed = environment_of(r, "predicted_from_assumed"); !assumed.empty())
    out += "assumed, not measured: " + assumed + "\n";
  const double outside = environment_number(r, "predicted_context_bytes") +
                         environment_number(r, "predicted_communicator_bytes") +
                         environment_number(r, "predicted_workspace_bytes");
  if (outside > 0) {
    out += fmt::format("outside of tensors: {} for context, communicators and workspaces (modelled)\n",
                       format_bytes(static_cast<fsdp::Bytes>(outside)));
  }
  return out;
}

std::string timing(const CaseRecord& r) {
  if (!r.step_ns) return "";
  std::string out = fmt::format("step     {}", format_nanos(*r.step_ns));
  if (r.samples.size() > 1 && r.step_ci_low_ns && r.step_ci_high_ns) {
    out += fmt::format("   [{}, {}] holds the median with {:.1f} %", format_nanos(*r.step_ci_low_ns),
                       format_nanos(*r.step_ci_high_ns), 100 * r.ci_coverage);
  }
  if (r.predicted) {
    out += " (predicted)\n";
  } else {
    out += fmt::format("   {} repetition{} of {} steps\n", r.repetitions, r.repetitions == 1 ? "" : "s",
                       setting_of(r, "steps"));
  }
  if (r.tokens_per_s) out += fmt::format("rate     {}\n", reports::rate_text(*r.tokens_per_s));
  return out + prediction(r);
}

std::string partition(const CaseRecord& r) {
  if (!r.partition || !r.traced_step_ns || *r.traced_step_ns <= 0) return "";
  std::string out = fmt::format("\nwhere the traced step goes ({} on rank {}, step {})\n",
                                format_nanos(*r.traced_step_ns), r.partition_rank, r.partition_step);
  for (int i = 0; i < kPartitionClassCount; ++i) {
    const fsdp::Nanos ns = (*r.partition)[static_cast<std::size_t>(i)];
    const double share = static_cast<double>(ns) / static_cast<double>(*r.traced_step_ns);
    out +=
        fmt::format("  {:<28} {:>11} {:>6.1f} %  {}\n", reports::class_text(static_cast<PartitionClass>(i)),
                    format_nanos(ns), 100 * share, std::string(static_cast<std::size_t>(share * kBarWidth + 0.5), '#'));
  }
  if (r.overlap_pct) out += fmt::format("  {:.1f} % of the communication is hidden behind compute\n", *r.overlap_pct);
  if (r.observer_ratio) out += fmt::format("  traced step / untraced step: {:.3f}\n", *r.observer_ratio);
  if (r.collectives && r.communicated_bytes) {
    out += fmt::format("  {} collectives, {} sent per rank and step\n", *r.collectives,
                       format_bytes(*r.communicated_bytes));
  }
  return out;
}

// Units whose collectives are exposed the longest.
std::string exposed_units(const CaseRecord& r) {
  std::vector<UnitMetrics> rows;
  std::copy_if(r.unit_metrics.begin(), r.unit_metrics.end(), std::back_inserter(rows),
               [](const UnitMetrics& m) { return m.exposed_ns > 0; });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const UnitMetrics& a, const UnitMetrics& b) { return a.exposed_ns > b.exposed_ns; });
  if (rows.empty()) return "";
  std::string out = fmt::format("\n{:<32} {:<9} {:>12} {:>12} {:>12}\n", "exposed the longest", "pass", "exposed",
                                "hidden", "compute");
  for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), 5); ++i) {
    const UnitMetrics& m = rows[i];
    out += fmt::format("  {:<30} {:<9} {:>12} {:>12} {:>12}\n", unit_name(r, m.unit), name_of(m.pass),
                       format_nanos(m.exposed_ns), format_nanos(m.hidden_ns), format_nanos(m.compute_ns));
  }
  return out;
}

std::string memory(const CaseRecord& r) {
  if (!r.peak_bytes) return "";
  const auto most = std::max_element(r.ranks.begin(), r.ranks.end(), [](const RankRecord& a, const RankRecord& b) {
    return a.peak.total < b.peak.total;
  });
  std::string out = fmt::format("\nmemory at the peak: {}", format_bytes(*r.peak_bytes));
  if (most != r.ranks.end()) out += fmt::format(" on rank {}", most->rank);
  out += fmt::format(" ({})\n", r.peak_cause);
  if (most == r.ranks.end()) return out;
  for (int i = 0; i < fsdp::kMemoryCategoryCount; ++i) {
    const fsdp::Bytes n = most->peak.at_peak[static_cast<std::size_t>(i)];
    const double share = *r.peak_bytes > 0 ? static_cast<double>(n) / static_cast<double>(*r.peak_bytes) : 0;
    out += fmt::format("  {:<28} {:>11} {:>6.1f} %  {}\n", name_of(static_cast<fsdp::MemoryCategory>(i)),
                       format_bytes(n), 100 * share,
                       std::string(static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * kBarWidth + 0.5), '#'));
  }
  return out;
}

}  // namespace

std::string case_text(const CaseRecord& r) {
  std::string out = head(r) + timing(r) + partition(r) + exposed_units(r) + memory(r);
  if (!r.losses.empty())
    out += fmt::format("\nloss     {:.6f} after {} steps, {:.6f} at the first\n", r.losses.back(), r.losses.size(),
                       r.losses.front());
  for (const std::string& w : r.warnings) out += "warning  " + w + "\n";
  return out;
}

}  // namespace harness::cli
