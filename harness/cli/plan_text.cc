// A plan as text for people and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/cli/plan_view.h"
#include "harness/sweep/quantities.h"

namespace harness::cli {
namespace {

constexpr std::size_t kLongestName = 44;

std::string shortened(const std::string& text) {
  return text.size() <= kLongestName ? text : text.substr(0, kLongestName - 3) + "...";
}

std::string unit_table(const PlanView& view) {
  std::string out = fmt::format("{:<44} {:>14} {:>7} {:>12} {:>12} {:>10}  {}\n", "unit", "parameters", "share",
                                "unsharded", "shard", "padding", "strategy");
  std::int64_t parameters = 0;
  fsdp::Bytes unsharded = 0, shard = 0, padding = 0;
  for (const PlanUnit& u : view.units) {
    out += fmt::format("{:<44} {:>14} {:>6.1f}% {:>12} {:>12} {:>10}  {}\n", shortened(u.name), u.parameters,
                       100 * u.share, format_bytes(u.unsharded_bytes), format_bytes(u.shard_bytes),
                       format_bytes(u.padding_bytes), u.strategy);
    parameters += u.parameters, unsharded += u.unsharded_bytes, shard += u.shard_bytes, padding += u.padding_bytes;
  }
  return out + fmt::format("{:<44} {:>14} {:>6.1f}% {:>12} {:>12} {:>10}\n", fmt::format("{} units", view.units.size()),
                           parameters, 100.0, format_bytes(unsharded), format_bytes(shard), format_bytes(padding));
}

std::string categories(const fsdp::BytesByCategory& by, fsdp::Bytes total, const std::string& cause, bool whole) {
  std::string out;
  for (int i = 0; i < fsdp::kMemoryCategoryCount; ++i) {
    const auto category = static_cast<fsdp::MemoryCategory>(i);
    const bool of_model = category == fsdp::MemoryCategory::kActivations || category == fsdp::MemoryCategory::kOther;
    if (of_model && !whole) continue;
    const fsdp::Bytes n = by[static_cast<std::size_t>(i)];
    out += fmt::format("  {:<24} {:>16} B  {:>12}\n", name_of(category), n, format_bytes(n));
  }
  return out + fmt::format("  {:<24} {:>16} B  {:>12}   ({})\n", "total", total, format_bytes(total), cause);
}

std::string memory_table(const PlanView& view) {
  std::string out = "memory of one rank at the peak, without activations (predicted by the scheduler itself)\n" +
                    categories(view.at_peak, view.peak_bytes, view.peak_cause, false);
  if (!view.with_activations) return out + "  activations              apart: --activations, or `shardscope run`\n";
  return out + "\nwith activations (predicted by a step on tensors without memory)\n" +
         categories(view.with_activations->at_peak, view.with_activations->total, view.with_activations_cause, true);
}

nlohmann::ordered_json by_category(const fsdp::BytesByCategory& by) {
  static constexpr const char* kNames[] = {"parameters_bytes", "gradients_bytes", "optimizer_bytes", "unsharded_bytes",
                                           "reduce_bytes"};
  nlohmann::ordered_json out;
  for (std::size_t i = 0; i < std::size(kNames); ++i) out[kNames[i]] = by[i];
  return out;
}

}  // namespace

std::string plan_text(const CaseSettings& c, const PlanView& view) {
  const PlanUnit& largest = view.units[view.largest_unit];
  std::string out = fmt::format("{}, {} parameters, {} ranks, wrap {}, {}\n\n", model_name(c.model.text),
                                view.parameters, c.world, c.wrap.text, setting_text(c, "strategy"));
  out += unit_table(view);
  out += fmt::format("\nlargest unit        {} ({} B, {:.1f} % of the parameters)\n", largest.name,
                     largest.unsharded_bytes, 100 * largest.share);
  out += fmt::format("largest allocation  {} B ({})\n\n", view.largest_allocation_bytes, view.largest_allocation);
  out += memory_table(view);
  if (!view.notes.empty()) out += "\n";
  for (const std::string& note : view.notes) out += "note: " + note + "\n";
  return out;
}

std::string plan_json(const CaseSettings& c, const PlanView& view) {
  nlohmann::ordered_json out;
  out["case"] = case_id(c);
  out["settings"] = nlohmann::ordered_json::parse(to_json(c));
  out["parameters"] = view.parameters;
  out["units"] = view.units.size();
  out["largest_unit"] = view.units[view.largest_unit].name;
  out["largest_unit_bytes"] = view.units[view.largest_unit].unsharded_bytes;
  out["largest_allocation"] = view.largest_allocation;
  out["largest_allocation_bytes"] = view.largest_allocation_bytes;
  auto& table = out["unit_table"] = nlohmann::ordered_json::array();
  for (const PlanUnit& u : view.units) {
    table.push_back({{"name", u.name},
                     {"modules", u.modules},
                     {"parameters", u.parameters},
                     {"share", u.share},
                     {"unsharded_bytes", u.unsharded_bytes},
                     {"shard_bytes", u.shard_bytes},
                     {"gradient_bytes", u.gradient_bytes},
                     {"reduce_bytes", u.reduce_bytes},
                     {"optimizer_bytes", u.optimizer_bytes},
                     {"padding_bytes", u.padding_bytes},
                     {"strategy", u.strategy}});
  }
  auto& memory = out["memory"] = by_category(view.at_peak);
  memory["total_bytes"] = view.peak_bytes;
  memory["cause"] = view.peak_cause;
  memory["activations_bytes"] = nullptr;  // apart: memory_with_activations, or a run
  memory["category_peaks"] = by_category(view.category_peaks);
  if (view.with_activations) {
    const fsdp::MemoryPeak& peak = *view.with_activations;
    auto& with = out["memory_with_activations"] = by_category(peak.at_peak);
    with["activations_bytes"] = peak.at_peak[static_cast<std::size_t>(fsdp::MemoryCategory::kActivations)];
    with["other_bytes"] = peak.at_peak[static_cast<std::size_t>(fsdp::MemoryCategory::kOther)];
    with["total_bytes"] = peak.total;
    with["cause"] = view.with_activations_cause;
  }
  out["notes"] = view.notes;
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace harness::cli
