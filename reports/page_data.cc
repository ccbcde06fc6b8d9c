#include "reports/page_data.h"

#include <algorithm>
#include <array>
#include <set>

#include "harness/advise/findings.h"
#include "reports/text.h"

namespace reports {
namespace {

using harness::CaseRecord;

constexpr std::size_t kReasonLimit = 4'000, kCommandLimit = 32'000, kSpecLimit = 64'000;
constexpr std::size_t kSamplesShown = 200, kTopParts = 8, kRemarksShown = 60;

template <typename Numbers>
void write_array(JsonWriter& json, std::string_view name, const Numbers& numbers, std::size_t limit = 1'000'000) {
  json.key(name).begin_array();
  std::size_t n = 0;
  for (const auto& v : numbers) {
    if (n++ == limit) break;
    json.value(v);
  }
  json.end_array();
}

void write_map(JsonWriter& json, const std::map<std::string, std::string>& m) {
  json.begin_object();
  for (const auto& [key, value] : m) json.key(key).value(value);
  json.end_object();
}

void write_sentence(JsonWriter& json, const Sentence& s) {
  json.begin_array();
  for (const Piece& p : s) {
    if (!p.strong) {
      json.value(p.text);
      continue;
    }
    json.begin_array().value(p.text);
    if (p.case_index) json.value(*p.case_index);
    json.end_array();
  }
  json.end_array();
}

void write_answer(JsonWriter& json, const Answer& a) {
  json.begin_object().field("question", a.question).key("sentence");
  write_sentence(json, a.sentence);
  json.key("notes").begin_array();
  for (const Sentence& note : a.notes) write_sentence(json, note);
  json.end_array().end_object();
}

// [class, pass, collective, ns]: the partition without its units.
void write_details(JsonWriter& json, const CaseRecord& c) {
  std::map<std::array<int, 3>, fsdp::Nanos> sums;
  for (const auto& d : c.partition_details) {
    sums[{static_cast<int>(d.cls), static_cast<int>(d.pass), static_cast<int>(d.collective)}] += d.ns;
  }
  json.key("details").begin_array();
  for (const auto& [key, ns] : sums) json.begin_array().value(key[0]).value(key[1]).value(key[2]).value(ns).end_array();
  json.end_array();
}

// [class, unit, pass, collective, ns]: where most time went that was not compute.
void write_top_parts(JsonWriter& json, const CaseRecord& c) {
  std::vector<harness::PartitionDetail> parts;
  for (const auto& d : c.partition_details) {
    if (d.ns > 0 && d.cls > harness::PartitionClass::kOverlapped) parts.push_back(d);
  }
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
  if (parts.size() > kTopParts) parts.resize(kTopParts);
  json.key("top").begin_array();
  for (const auto& d : parts) {
    json.begin_array().value(static_cast<int>(d.cls)).value(d.unit).value(static_cast<int>(d.pass));
    json.value(static_cast<int>(d.collective)).value(d.ns).end_array();
  }
  json.end_array();
}

void write_memory(JsonWriter& json, const CaseRecord& c) {
  json.key("ranks").begin_array();
  for (const auto& r : c.ranks) {
    std::vector<fsdp::Nanos> steps = r.step_ns;
    std::sort(steps.begin(), steps.end());
    json.begin_array().value(r.rank).value(r.peak.total);
    r.peak_cause == c.peak_cause ? json.null() : json.value(r.peak_cause);  // null: as the case
    // The lower middle of an even count, as in the partition: its rank has its step.
    steps.empty() ? json.null() : json.value(steps[(steps.size() - 1) / 2]);
    json.end_array();
  }
  json.end_array();
  const auto fullest = std::max_element(c.ranks.begin(), c.ranks.end(),
                                        [](const auto& a, const auto& b) { return a.peak.total < b.peak.total; });
  if (fullest == c.ranks.end()) return;
  write_array(json, "memory", fullest->peak.at_peak);
  json.field("memory_rank", fullest->rank).field("memory_unit", fullest->peak.where.unit);
  json.field("memory_pass", static_cast<int>(fullest->peak.where.pass));
}

void write_numbers(JsonWriter& json, const CaseRecord& c) {
  json.field("units", c.units).field("largest_unit_bytes", c.largest_unit_bytes);
  json.field("step_ns", c.step_ns).field("step_mad_ns", c.step_mad_ns);
  json.field("step_ci_low_ns", c.step_ci_low_ns).field("step_ci_high_ns", c.step_ci_high_ns);
  json.field("ci_coverage", c.ci_coverage).field("stopped_by", c.stopped_by).field("repetitions", c.repetitions);
  write_array(json, "samples", c.samples, kSamplesShown);
  json.field("tokens_per_s", c.tokens_per_s).field("peak_bytes", c.peak_bytes).field("peak_cause", c.peak_cause);
  json.field("budget", budget_of(c)).field("traced_step_ns", c.traced_step_ns);
  if (c.partition) write_array(json, "partition", *c.partition);
  json.field("partition_rank", c.partition_rank).field("partition_step", c.partition_step);
  json.field("overlap_pct", c.overlap_pct).field("collectives", c.collectives);
  json.field("communicated_bytes", c.communicated_bytes).field("observer_ratio", c.observer_ratio);
  json.field("emulated", c.emulated).field("predicted", c.predicted);
}

std::map<std::string, std::string> without(const std::map<std::string, std::string>& all,
                                           const std::map<std::string, std::string>& known) {
  std::map<std::string, std::string> rest;
  for (const auto& [key, value] : all) {
    const auto place = known.find(key);
    if (place == known.end() || place->second != value) rest.emplace(key, value);
  }
  return rest;
}

// Returns what the sweep recorded of its environment, and the entries on which all cases agree that recorded one. The
// command is left out, because the page shows it in a place of its own.
std::map<std::string, std::string> common_environment(const ReportInput& input) {
  std::map<std::string, std::string> common;
  bool first = true;
  for (const CaseRecord& c : input.cases) {
    if (c.environment.empty()) continue;
    if (first) common = c.environment;
    first = false;
    std::erase_if(common, [&](const auto& entry) {
      const auto other = c.environment.find(entry.first);
      return other == c.environment.end() || other->second != entry.second;
    });
  }
  common.insert(input.sweep.environment.begin(), input.sweep.environment.end());
  common.erase("command");
  return common;
}

// Settings with one value in the whole sweep.
void write_constants(JsonWriter& json, const ReportInput& input) {
  json.key("settings").begin_array();
  if (!input.cases.empty()) {
    for (const auto& [name, value] : input.cases.front().settings) {
      const bool same =
          std::all_of(input.cases.begin(), input.cases.end(), [&, &name = name, &value = value](const auto& c) {
            const std::string* other = setting(c, name);
            return other && *other == value;
          });
      if (same) json.begin_array().value(name).value(value).end_array();
    }
  }
  json.end_array();
}

void write_axes(JsonWriter& json, const SweepShape& shape) {
  json.key("axes").begin_array();
  for (const Axis& axis : shape.axes) {
    json.begin_object().field("name", axis.name);
    std::vector<std::string> labels;
    for (std::size_t i = 0; i < axis.values.size(); ++i) labels.push_back(value_label(axis, i));
    write_array(json, "values", labels);
    write_array(json, "units", axis.units);
    json.field("workload", axis.workload).end_object();
  }
  json.end_array().field("granularity", shape.granularity);
}

// Best, default, slowest and the edges first: their timelines are what a reader opens.
std::vector<std::size_t> by_importance(const std::vector<Findings>& findings, std::size_t cases) {
  std::vector<std::size_t> order;
  std::set<std::size_t> seen;
  const auto add = [&](std::size_t i) {
    if (seen.insert(i).second) order.push_back(i);
  };
  for (const Findings& f : findings) {
    for (const auto& i : {f.best, f.worst, f.standard}) {
      if (i) add(*i);
    }
    for (const Boundary& b : f.boundaries) {
      if (b.last_fit) add(*b.last_fit);
    }
  }
  for (std::size_t i = 0; i < cases; ++i) add(i);
  return order;
}

// [kind, confidence, text, [cases]] of the findings whose cases all lie in the workload. Boundaries have a table of
// their own.
void write_remarks(JsonWriter& json, const ReportInput& input, const std::vector<harness::Finding>& remarks,
                   const Workload& workload) {
  std::map<std::string, std::size_t> here;
  for (const std::size_t i : workload.cases) here.emplace(input.cases[i].id, i);
  std::size_t shown = 0, all = 0;
  json.key("remarks").begin_array();
  for (const harness::Finding& f : remarks) {
    const bool mine = !f.cases.empty() && std::all_of(f.cases.begin(), f.cases.end(),
                                                      [&](const std::string& id) { return here.count(id) > 0; });
    if (!mine || f.kind == harness::Finding::Kind::kBoundary || ++all > kRemarksShown) continue;
    ++shown;
    json.begin_array()
        .value(harness::name_of(f.kind))
        .value(harness::name_of(f.confidence))
        .value(f.text)
        .begin_array();
    for (const std::string& id : f.cases) json.value(here.at(id));
    json.end_array().end_array();
  }
  json.end_array().field("remarks_left_out", all - shown);
}

void write_workloads(JsonWriter& json, const ReportInput& input, const SweepShape& shape,
                     const std::vector<Findings>& findings) {
  const std::vector<harness::Finding> remarks = harness::find_findings(input.sweep.axes, input.cases);
  json.key("workloads").begin_array();
  for (std::size_t w = 0; w < shape.workloads.size(); ++w) {
    json.begin_object().field("label", shape.workloads[w].label);
    write_array(json, "cases", shape.workloads[w].cases);
    write_findings(json, findings[w]);
    write_remarks(json, input, remarks, shape.workloads[w]);
    json.end_object();
  }
  json.end_array();
}

void write_sweep(JsonWriter& json, const ReportInput& input, const SweepShape& shape,
                 const std::vector<Findings>& findings, const ReportOptions& options) {
  const auto& s = input.sweep;
  json.begin_object().field("name", s.name).field("hash", s.spec_hash).field("created_at", s.created_at);
  json.field("schema_version", s.schema_version).field("folder", input.folder);
  json.key("command").value(std::string_view(s.command), kCommandLimit);
  json.key("spec").value(std::string_view(s.spec_text), kSpecLimit);
  const auto environment = common_environment(input);
  json.key("environment");
  write_map(json, environment);
  write_constants(json, input);
  write_axes(json, shape);
  write_workloads(json, input, shape, findings);

  SharedTables tables;
  json.key("cases").begin_array();
  for (std::size_t i = 0; i < input.cases.size(); ++i) {
    write_case(json, input.cases[i], shape.at[i], environment, options, tables);
  }
  json.end_array();
  tables.write(json);
  json.end_object();
}

// [[predicted sweep, case, measured sweep, case], ...]
void write_predictions(JsonWriter& json, const std::vector<ReportInput>& inputs) {
  json.key("predictions").begin_array();
  for (const PredictedPair& p : predicted_pairs(inputs)) {
    json.begin_array().value(p.predicted.sweep).value(p.predicted.index);
    json.value(p.measured.sweep).value(p.measured.index).end_array();
  }
  json.end_array();
}

// One sweep's: what of it is in the page; by case its packed text ("" where there is none) and the uncertainty of its
// ranks' clocks.
void write_timelines(JsonWriter& json, const Timelines& t) {
  json.begin_object().field("with_spans", t.with_spans).field("embedded", t.embedded).field("all_ranks", t.all_ranks);
  json.key("packed").begin_array();
  for (const std::string& text : t.packed) json.value(std::string_view(text), text.size());
  json.end_array();
  write_array(json, "clock_ns", t.clock_uncertainty);
  json.end_object();
}

}  // namespace

std::size_t SharedTables::add(const std::vector<harness::UnitRecord>& units) {
  JsonWriter json;
  json.begin_array();
  for (const auto& u : units) {
    json.begin_array().value(u.name).value(u.parameters).value(u.unsharded_bytes).value(u.shard_bytes);
    json.value(u.reduce_bytes).value(u.strategy).end_array();
  }
  json.end_array();
  const auto [place, fresh] = unit_index_.emplace(json.text(), units_.size());
  if (fresh) units_.push_back(json.text());
  return place->second;
}

std::size_t SharedTables::add(const std::map<std::string, std::string>& environment) {
  JsonWriter json;
  write_map(json, environment);
  const auto [place, fresh] = environment_index_.emplace(json.text(), environments_.size());
  if (fresh) environments_.push_back(json.text());
  return place->second;
}

void SharedTables::write(JsonWriter& json) const {
  json.key("unit_tables").begin_array();
  for (const std::string& text : units_) json.raw(text);
  json.end_array().key("environments").begin_array();
  for (const std::string& text : environments_) json.raw(text);
  const std::string policies = policies_.packed();
  json.end_array().key("policies").value(std::string_view(policies), policies.size());
}

void write_case(JsonWriter& json, const CaseRecord& c, const std::vector<int>& at,
                const std::map<std::string, std::string>& known_environment, const ReportOptions& options,
                SharedTables& tables) {
  auto environment = without(c.environment, known_environment);
  environment.erase("command");
  json.begin_object().field("id", c.id).field("status", harness::name_of(c.status));
  if (!c.reason.empty()) json.key("reason").value(std::string_view(c.reason), kReasonLimit);
  write_array(json, "at", at);
  write_numbers(json, c);
  write_details(json, c);
  write_top_parts(json, c);
  write_memory(json, c);
  json.field("unit_table", tables.add(c.unit_table)).field("environment", tables.add(environment));
  json.field("policy", tables.policies().add(c));
  write_array(json, "warnings", c.warnings, 20);
  json.field("started_at", c.started_at).field("finished_at", c.finished_at);
  json.key("command").value(std::string_view(rerun_command(c, options.defaults)), kCommandLimit);
  json.end_object();
}

void write_findings(JsonWriter& json, const Findings& f) {
  json.field("best", f.best).field("standard", f.standard).field("worst", f.worst).field("per_token", f.per_token);
  write_array(json, "pareto", f.pareto);
  json.key("answers").begin_array();
  for (const Answer* a : {&f.wrap, &f.slow, &f.fit}) write_answer(json, *a);
  json.end_array().key("steps").begin_array();
  for (const NeighbourStep& s : f.steps) {
    json.begin_array().value(s.axis).value(s.from).value(s.to).value(s.change).value(s.disjoint).value(s.cliff);
    json.value(s.cause ? static_cast<int>(*s.cause) : -1).value(s.share).end_array();
  }
  json.end_array().key("boundaries").begin_array();
  for (const Boundary& b : f.boundaries) {
    json.begin_array().value(b.axis).value(b.last_fit).value(b.first_oom).value(b.violated).end_array();
  }
  json.end_array();
}

std::string report_json(const std::vector<ReportInput>& inputs, const ReportOptions& options) {
  std::vector<std::vector<std::size_t>> orders;
  JsonWriter json;
  json.begin_object().field("title", options.title).key("sweeps").begin_array();
  for (const ReportInput& input : inputs) {
    const SweepShape shape = shape_of(input);
    std::vector<Findings> findings;
    for (const Workload& w : shape.workloads) findings.push_back(find(input, shape, w));
    write_sweep(json, input, shape, findings, options);
    orders.push_back(by_importance(findings, input.cases.size()));
  }
  json.end_array();
  write_predictions(json, inputs);
  // Last, so that timelines can take what everything else leaves.
  std::size_t used = json.text().size();
  for (const ReportInput& input : inputs) used += 300 + 16 * input.cases.size();  // counts, quotes, uncertainties
  const std::size_t left = options.data_budget > used ? options.data_budget - used : 0;
  const std::size_t share = std::min(options.timeline_budget, left) / std::max<std::size_t>(1, inputs.size());
  json.key("timelines").begin_array();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    write_timelines(json, pack_timelines(inputs[i].cases, orders[i], share));
  }
  json.end_array().end_object();
  return json.text();
}

}  // namespace reports
