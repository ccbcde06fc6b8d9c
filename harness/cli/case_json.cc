#include <nlohmann/json.hpp>

#include "harness/cli/case_text.h"

namespace harness::cli {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& v) {
  return v ? Json(*v) : Json(nullptr);
}

std::string unit_name(const CaseRecord& r, fsdp::UnitId unit) {
  const auto i = static_cast<std::size_t>(unit);
  return unit >= 0 && i < r.unit_table.size() ? r.unit_table[i].name : "";
}

void add_columns(Json& out, const CaseRecord& r) {
  out["case"] = r.id;
  out["status"] = name_of(r.status);
  out["reason"] = r.reason;
  for (const auto& [name, value] : r.axes) out[name] = value;
  out["units"] = or_null(r.units);
  out["largest_unit_bytes"] = or_null(r.largest_unit_bytes);
  out["step_ns"] = or_null(r.step_ns);
  out["step_mad_ns"] = or_null(r.step_mad_ns);
  out["step_ci_low_ns"] = or_null(r.step_ci_low_ns);
  out["step_ci_high_ns"] = or_null(r.step_ci_high_ns);
  out["repetitions"] = r.repetitions;
  out["tokens_per_s"] = or_null(r.tokens_per_s);
  out["peak_bytes"] = or_null(r.peak_bytes);
  out["peak_cause"] = r.peak_cause;
  out["traced_step_ns"] = or_null(r.traced_step_ns);
  for (int i = 0; i < kPartitionClassCount; ++i) {
    out[std::string(name_of(static_cast<PartitionClass>(i))) + "_ns"] =
        r.partition ? Json((*r.partition)[static_cast<std::size_t>(i)]) : Json(nullptr);
  }
  out["overlap_pct"] = or_null(r.overlap_pct);
  out["collectives"] = or_null(r.collectives);
  out["communicated_bytes"] = or_null(r.communicated_bytes);
  out["observer_ratio"] = or_null(r.observer_ratio);
  out["emulated"] = r.emulated;
  out["predicted"] = r.predicted;
}

Json unit_table(const CaseRecord& r) {
  Json out = Json::array();
  for (const UnitRecord& u : r.unit_table) {
    out.push_back({{"name", u.name},
                   {"parameters", u.parameters},
                   {"unsharded_bytes", u.unsharded_bytes},
                   {"shard_bytes", u.shard_bytes},
                   {"reduce_bytes", u.reduce_bytes},
                   {"strategy", u.strategy}});
  }
  return out;
}

Json unit_metrics(const CaseRecord& r) {
  Json out = Json::array();
  for (const UnitMetrics& m : r.unit_metrics) {
    out.push_back({{"unit", unit_name(r, m.unit)},
                   {"unit_index", m.unit},
                   {"pass", name_of(m.pass)},
                   {"all_gathers", m.all_gathers},
                   {"reduce_scatters", m.reduce_scatters},
                   {"other_collectives", m.other_collectives},
                   {"all_gather_bytes", m.all_gather_bytes},
                   {"reduce_scatter_bytes", m.reduce_scatter_bytes},
                   {"all_gather_ns", m.all_gather_ns},
                   {"reduce_scatter_ns", m.reduce_scatter_ns},
                   {"exposed_ns", m.exposed_ns},
                   {"hidden_ns", m.hidden_ns},
                   {"compute_ns", m.compute_ns},
                   {"copy_ns", m.copy_ns}});
  }
  return out;
}

Json by_category(const fsdp::BytesByCategory& by) {
  static constexpr const char* kNames[] = {"parameters_bytes", "gradients_bytes", "optimizer_bytes",
                                           "unsharded_bytes",  "reduce_bytes",    "activations_bytes",
                                           "other_bytes"};
  Json out;
  for (std::size_t i = 0; i < std::size(kNames); ++i) out[kNames[i]] = by[i];
  return out;
}

Json ranks(const CaseRecord& r) {
  Json out = Json::array();
  for (const RankRecord& k : r.ranks) {
    Json at_peak = by_category(k.peak.at_peak), largest = by_category(k.category_peaks);
    out.push_back({{"rank", k.rank},
                   {"peak_bytes", k.peak.total},
                   {"peak_cause", k.peak_cause},
                   {"at_peak", at_peak},
                   {"category_peaks", largest},
                   {"traced_step_ns", k.step_ns}});
  }
  return out;
}

}  // namespace

// Numbers that are not finite are null: JSON has no others.
std::string case_json(const CaseRecord& r) {
  Json out;
  add_columns(out, r);
  out["losses"] = r.losses;
  out["grad_norms"] = r.grad_norms;
  out["samples_ns"] = r.samples;
  out["unit_table"] = unit_table(r);
  out["unit_metrics"] = unit_metrics(r);
  out["ranks"] = ranks(r);
  if (r.prefetch) {
    const PrefetchCounts& p = *r.prefetch;
    out["prefetch"] = {
        {"hits", p.hits}, {"misses", p.misses}, {"unused", p.unused}, {"order_changes", p.order_changes}};
  }
  Json settings = Json::object();
  for (const auto& [name, value] : r.settings) settings[name] = value;
  out["settings"] = settings;
  Json environment = Json::object();
  for (const auto& [name, value] : r.environment) environment[name] = value;
  out["environment"] = environment;
  out["warnings"] = r.warnings;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace harness::cli
