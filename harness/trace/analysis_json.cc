#include <nlohmann/json.hpp>

#include "harness/trace/analyze_parts.h"
#include "harness/trace/json_text.h"

namespace harness {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& v) {
  return v ? Json(*v) : Json(nullptr);
}

// Percentages as numbers of four decimals: more is noise.
Json percent(const std::optional<double>& v) {
  if (!v) return nullptr;
  return std::round(*v * 1e4) / 1e4;
}

void add_classes(Json& j, const Partition& p) {
  for (int i = 0; i < kPartitionClassCount; ++i) {
    j[std::string(name_of(static_cast<PartitionClass>(i))) + "_ns"] = p[static_cast<std::size_t>(i)];
  }
}

std::string unit_of(fsdp::UnitId unit, const std::vector<std::string>& names) {
  return unit >= 0 && static_cast<std::size_t>(unit) < names.size() ? names[static_cast<std::size_t>(unit)]
                                                                    : std::string();
}

Json text_or_null(const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); }

Json step_json(const ForeignStep& s, fsdp::Nanos origin) {
  Json j;
  j["label"] = text_or_null(s.label);
  j["begin_ns"] = s.partition.begin - origin;
  j["length_ns"] = s.partition.end - s.partition.begin;
  j["operations"] = s.operations;
  add_classes(j, s.partition.classes);
  j["host_not_issued_ns"] = s.host_not_issued;
  j["host_launch_ns"] = s.host_launch;
  j["idle_dependency_ns"] = s.idle_dependency;
  j["idle_unknown_ns"] = s.idle_unknown;
  j["communication_ns"] = s.partition.communication;
  j["communication_hidden_ns"] = s.partition.communication_hidden;
  j["unrecorded_ns"] = s.unrecorded;
  j["cut"] = s.cut;
  j["left_out"] = s.left_out;
  return j;
}

Json details_json(const ForeignStep& s, const std::vector<std::string>& names) {
  Json out = Json::array();
  for (const PartitionDetail& d : s.partition.details) {
    const bool exposed = d.cls >= PartitionClass::kExposedAllGatherForward && d.cls <= PartitionClass::kExposedOther;
    Json j;
    j["class"] = name_of(d.cls);
    j["unit"] = text_or_null(unit_of(d.unit, names));
    j["pass"] = d.pass == fsdp::Pass::kNone ? Json(nullptr) : Json(fsdp::name_of(d.pass));
    j["collective"] = exposed ? Json(fsdp::name_of(d.collective)) : Json(nullptr);
    j["ns"] = d.ns;
    out.push_back(std::move(j));
  }
  return out;
}

Json units_json(const std::vector<UnitMetrics>& units, const std::vector<std::string>& names) {
  Json out = Json::array();
  for (const UnitMetrics& m : units) {
    Json j;
    j["unit"] = text_or_null(unit_of(m.unit, names));
    j["pass"] = m.pass == fsdp::Pass::kNone ? Json(nullptr) : Json(fsdp::name_of(m.pass));
    j["all_gathers"] = m.all_gathers;
    j["all_gather_bytes"] = m.all_gather_bytes;
    j["all_gather_ns"] = m.all_gather_ns;
    j["reduce_scatters"] = m.reduce_scatters;
    j["reduce_scatter_bytes"] = m.reduce_scatter_bytes;
    j["reduce_scatter_ns"] = m.reduce_scatter_ns;
    j["other_collectives"] = m.other_collectives;
    j["exposed_ns"] = m.exposed_ns;
    j["hidden_ns"] = m.hidden_ns;
    j["compute_ns"] = m.compute_ns;
    out.push_back(std::move(j));
  }
  return out;
}

// Over the steps that count; "saved_is_exact": false for upper bounds.
Json savings_json(const RowAnalysis& row) {
  std::vector<Saving> all = row.total.savings;
  sort_savings(all);
  Json out = Json::array();
  for (const Saving& s : all) {
    Json j;
    j["unit"] = text_or_null(unit_of(s.unit, names_of(row)));
    j["pass"] = s.pass == fsdp::Pass::kNone ? Json(nullptr) : Json(fsdp::name_of(s.pass));
    j["collective"] = fsdp::name_of(s.collective);
    j["exposed_ns"] = s.exposed_ns;
    j["saved_ns"] = s.saved_ns;
    out.push_back(std::move(j));
  }
  return out;
}

Json slowdown_json(const std::optional<Slowdown>& s) {
  if (!s) return nullptr;
  return {{"ratio", std::round(s->ratio() * 1e4) / 1e4},
          {"kernels", s->kernels},
          {"names", s->names},
          {"under_communication_ns", s->under_ns},
          {"alone_ns", std::llround(s->alone_ns)}};
}

Json convention_json(const RowAnalysis& row, Convention c) {
  Json j;
  if (c == Convention::kTraceLens && row.tracelens) {
    const TraceLensTimes& t = *row.tracelens;
    j = {{"compute_ns", t.compute},
         {"exposed_communication_ns", t.exposed_communication},
         {"exposed_memcpy_ns", t.exposed_memcpy},
         {"idle_ns", t.idle},
         {"hidden_communication_ns", t.hidden_communication},
         {"span_ns", t.span}};
  } else if (c == Convention::kNsys && row.nsys) {
    const NsysTimes& t = *row.nsys;
    j = {{"compute_only_ns", t.compute_only},
         {"nccl_only_ns", t.communication_only},
         {"overlap_ns", t.overlap},
         {"idle_ns", t.idle},
         {"span_ns", t.span},
         {"overlap_pct", percent(t.overlap_pct)}};
    const RowOverlap& o = row.partition.row_overlap;
    auto pct = [](fsdp::Nanos part, fsdp::Nanos all) {
      return all > 0 ? percent(100.0 * static_cast<double>(part) / static_cast<double>(all)) : Json(nullptr);
    };
    j["recipe"] = {{"communication_communication_pct", pct(o.communication_communication, o.communication)},
                   {"communication_compute_pct", pct(o.communication_compute, o.communication)},
                   {"compute_communication_pct", pct(o.compute_communication, o.compute)},
                   {"compute_compute_pct", pct(o.compute_compute, o.compute)}};
  } else if (c == Convention::kHta && row.hta) {
    const HtaResult& t = *row.hta;
    j["operations"] = t.operations;
    j["last_step_dropped"] = t.last_step_dropped;
    j["overlap_pct"] = percent(t.overlap_pct);
    const std::string unit = t.nanoseconds ? "_ns" : "_us";
    j["idle" + unit] = t.idle;
    j["compute" + unit] = t.compute;
    j["non_compute" + unit] = t.non_compute;
    j["kernel_time" + unit] = t.kernel_time;
    static constexpr std::string_view kTypes[] = {"",
                                                  "compute",
                                                  "communication",
                                                  "compute overlapping communication",
                                                  "memory",
                                                  "compute overlapping memory",
                                                  "communication overlapping memory",
                                                  "compute overlapping communication overlapping memory"};
    for (std::size_t i = 1; i < 8; ++i) j["kernel_types" + unit][std::string(kTypes[i])] = t.by_type[i];
    j["streams"] = Json::array();
    for (const HtaResult::StreamIdle& s : t.streams) {
      j["streams"].push_back({{"stream", s.stream},
                              {"host_wait" + unit, s.host_wait},
                              {"kernel_wait" + unit, s.kernel_wait},
                              {"other" + unit, s.other}});
    }
  }
  return j;
}

Json unclassified_json(const std::vector<Unclassified>& all) {
  Json out = Json::array();
  for (const Unclassified& u : all) {
    out.push_back({{"kind", u.kind},
                   {"text", printable(u.text)},
                   {"count", u.count},
                   {"ns", u.ns},
                   {"pct", percent(u.pct)},
                   {"matters", u.matters}});
  }
  return out;
}

// A document inside another, so many spaces further in.
void append_indented(std::string& out, const Json& j, const std::string& spaces) {
  const std::string text = j.dump(1, ' ', false, Json::error_handler_t::replace);
  for (const char c : text) {
    out += c;
    if (c == '\n') out += spaces;
  }
}

Json row_json(const RowAnalysis& row, Convention c, const FileAnalysis& file) {
  const ForeignPartition& p = row.partition;
  const fsdp::Nanos origin = p.whole.partition.begin;
  Json j;
  j["file"] = row.file;
  j["rank"] = or_null(row.rank);
  j["device"] = row.device < 0 || file.facts.source == TraceSource::kShardscope ? Json(nullptr) : Json(row.device);
  j["operations"] = p.whole.operations;
  j["kernels"] = p.counts.kernels;
  j["memcpys"] = p.counts.memcpys;
  j["memsets"] = p.counts.memsets;
  j["collectives"] = p.counts.communication;
  j["emulated"] = p.counts.emulated > 0;
  j["without_launch"] = p.counts.without_launch;
  j["begin_before_launch"] = p.counts.before_launch;
  j["span_ns"] = p.whole.partition.end - origin;
  j["overlap_pct"] = percent(row.overlap_pct);
  j["overlap_pct_of"] = p.has_steps ? "steps" : "whole";
  if (row.several_processes) j["process"] = row.process;
  if (file.facts.source != TraceSource::kShardscope) {
    const RunningTimes& r = p.whole.running;
    j["compute_union_ns"] = r.length(kRunsModel);
    j["communication_union_ns"] = r.length(kRunsAnyCommunication);
    j["copy_union_ns"] = r.length(kRunsMemcpy | kRunsMemset | kRunsCopyKernel);
    j["overlap_ns"] = r.both(kRunsModel, kRunsAnyCommunication);
    j["busy_ns"] = r.length(~0u);
    j["unions_of"] = "whole";  // the trace, with what ran outside of steps
  }
  j["has_steps"] = p.has_steps;
  Json total = step_json(row.total, origin);
  total.erase("label");
  total.erase("cut");
  total.erase("left_out");
  // Steps that were left out lie between the others: the length is what the classes cover.
  total["length_ns"] = sum(row.total.partition.classes);
  j["partition"] = std::move(total);
  j["details"] = details_json(row.total, names_of(row));
  if (p.has_steps) {
    j["steps"] = Json::array();
    const std::size_t listed = std::min(p.steps.size(), kMostStepsInJson);
    for (std::size_t i = 0; i < listed; ++i) j["steps"].push_back(step_json(p.steps[i], origin));
    j["steps_not_listed"] = p.steps.size() - listed;
    j["before_first_step"] = {
        {"operations", p.before.operations},
        {"length_ns", p.before.operations > 0 ? p.before.partition.end - p.before.partition.begin : 0},
        {"busy_ns", p.before.running.length(~0u)}};
  }
  j["units"] = units_json(p.units, names_of(row));
  j["savings"] = savings_json(row);
  j["savings_exact"] = row.savings_exact;
  j["slowdown"] = slowdown_json(p.slowdown);
  if (p.stretch.end > p.stretch.begin) {
    Json s;
    s["begin_ns"] = p.stretch.begin - origin;
    s["length_ns"] = p.stretch.end - p.stretch.begin;
    s["step"] = text_or_null(p.stretch.step);
    s["largest_class"] = name_of(p.stretch.largest);
    s["unit"] = text_or_null(unit_of(p.stretch.unit, names_of(row)));
    add_classes(s, p.stretch.classes);
    j["critical_stretch"] = std::move(s);
  } else {
    j["critical_stretch"] = nullptr;
  }
  j["findings"] = Json::array();
  for (const AnalysisFinding& f : row.findings)
    j["findings"].push_back({{"kind", f.kind}, {"text", f.text}, {"ns", f.ns}, {"saved_ns", or_null(f.saved_ns)}});
  j["unclassified"] = unclassified_json(row.unclassified);
  if (c != Convention::kExclusive) j["convention"] = convention_json(row, c);
  return j;
}

Json file_json(const FileAnalysis& f) {
  const TraceFacts& facts = f.facts;
  Json j;
  j["path"] = printable(facts.path);
  j["source"] = name_of(facts.source);
  j["rank"] = or_null(f.rank);
  j["rank_from"] = f.rank_from;
  j["world"] = or_null(facts.world);
  j["backend"] = text_or_null(printable(facts.backend));
  j["events"] = facts.events;
  j["text_bytes"] = facts.text_bytes;
  j["host_lanes"] = facts.host_lanes;
  j["device_operations"] = f.operations;
  j["truncated"] = facts.defects.truncated;
  j["lost_events"] = facts.defects.lost_events;
  j["tolerated"] = facts.defects.tolerated;
  j["first_defect"] = text_or_null(printable(facts.defects.first));
  j["bad_records"] = {{"total", facts.bad.total()},
                      {"zero_times", facts.bad.zero_times},
                      {"no_duration", facts.bad.no_duration},
                      {"negative_duration", facts.bad.negative_duration},
                      {"not_a_number", facts.bad.not_a_number},
                      {"impossible_duration", facts.bad.impossible_duration}};
  j["suspect"] = f.suspect;
  j["unclassified"] = unclassified_json(f.unclassified);
  j["issued"] = Json::array();
  for (const IssuedCollectives& i : f.issued) {
    j["issued"].push_back({{"unit", text_or_null(unit_of(i.unit, *f.unit_names))},
                           {"pass", i.pass == fsdp::Pass::kNone ? Json(nullptr) : Json(fsdp::name_of(i.pass))},
                           {"all_gathers", i.all_gathers},
                           {"reduce_scatters", i.reduce_scatters}});
  }
  return j;
}

Json alignment_json(const Alignment& a) {
  Json j;
  j["aligned"] = a.aligned;
  j["reason"] = text_or_null(a.reason);
  if (!a.aligned) return j;
  j["by"] = "end of common collectives";
  j["uncertainty_ns"] = a.uncertainty;
  j["clocks"] = Json::array();
  for (const RankClock& c : a.clocks) {
    j["clocks"].push_back({{"rank", c.rank},
                           {"offset_ns", c.offset},
                           {"drift_ppm", std::round(c.drift_ppm * 1e3) / 1e3},
                           {"uncertainty_ns", c.uncertainty}});
  }
  j["common_collectives"] = a.collectives.size();
  j["mean_skew_ns"] = or_null(a.mean_skew);
  j["median_skew_ns"] = or_null(a.median_skew);
  j["straggler"] = or_null(a.straggler);
  j["straggler_last"] = a.straggler ? Json(a.straggler_last) : Json(nullptr);
  j["collectives"] = Json::array();
  // The worst come first to mind; a file may hold many.
  for (std::size_t i = 0; i < std::min<std::size_t>(a.collectives.size(), 1000); ++i) {
    const AlignedCollective& c = a.collectives[i];
    Json waits = Json::array();
    const bool known = c.start_skew >= a.uncertainty;
    for (const fsdp::Nanos w : c.waits) waits.push_back(known ? Json(w) : Json(nullptr));
    j["collectives"].push_back({{"kind", fsdp::name_of(c.kind)},
                                {"arrivals_ns", c.arrivals},
                                {"waits_ns", waits},
                                {"transfer_ns", c.transfer},
                                {"start_skew_ns", known ? Json(c.start_skew) : Json(nullptr)},
                                {"end_skew_ns", c.end_skew},
                                {"last_rank", a.clocks[static_cast<std::size_t>(c.last)].rank}});
  }
  return j;
}

}  // namespace

std::string to_json(const TraceAnalysis& a) {
  Json j;
  j["schema"] = "shardscope-analysis/1";
  j["convention"] = name_of(a.convention);
  j["outcome"] = name_of(a.outcome);
  j["messages"] = Json::array();
  for (const std::string& m : a.messages) j["messages"].push_back(printable(m));
  j["files"] = Json::array();
  for (const FileAnalysis& f : a.files) j["files"].push_back(file_json(f));
  j["rows"] = Json::array();
  if (a.alignment) j["alignment"] = alignment_json(*a.alignment);
  j["imbalance_pct"] = percent(a.imbalance_pct);
  std::string out = j.dump(1, ' ', false, Json::error_handler_t::replace);
  if (a.rows.empty()) return out + "\n";
  // One row at a time: a tree takes several times the room of its text.
  const std::string empty = "\n \"rows\": []";
  const std::size_t at = out.find(empty) + empty.size() - 1;
  std::string rest = out.substr(at);
  out.resize(at);
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    out += i > 0 ? ",\n  " : "\n  ";
    append_indented(out, row_json(a.rows[i], a.convention, a.files[a.rows[i].file]), "  ");
  }
  return out + "\n " + rest + "\n";
}

}  // namespace harness
