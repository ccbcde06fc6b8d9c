// Reading of results.db: each table in one pass, rows handed to their case.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "fsdp/core/errors.h"
#include "harness/store/rows.h"
#include "harness/store/schema.h"
#include "harness/store/span_codec.h"
#include "harness/store/store.h"

namespace harness {
namespace {

using namespace store_detail;
using ByIndex = std::unordered_map<std::int64_t, CaseRecord*>;

// Calls take(record, row) for every row of the table, cases apart, in order. `only` >= 0: that case alone.
template <class T, class F>
void read_rows(sqlite::Database& db, const std::string& table, const ByIndex& cases, std::int64_t only, F&& take) {
  auto s = db.prepare("SELECT case_index, " + column_list<T>() + " FROM " + table +
                      (only >= 0 ? " WHERE case_index = ?" : "") + " ORDER BY case_index, position");
  if (only >= 0) s.bind(only);
  std::int64_t last = -1;
  CaseRecord* record = nullptr;
  while (s.step()) {
    if (const std::int64_t index = s.integer(0); index != last) {
      const auto found = cases.find(index);
      record = found == cases.end() ? nullptr : found->second;  // written after the list of cases was read
      last = index;
    }
    if (!record) continue;
    T row{};
    columns(row, Read{s, 1});
    take(*record, std::move(row));
  }
}

std::string case_columns() {
  std::string names = "case_index, " + column_list<CaseRecord>();
  Partition p{};
  columns(p, [&](const std::string& name, fsdp::Nanos&) { names += ", " + name; });
  return names;
}

CaseRecord read_case_row(const sqlite::Statement& s) {
  CaseRecord r;
  Read reader{s, 1};
  columns(r, reader);
  const int first = 1 + static_cast<int>(columns_of<CaseRecord>().size());
  if (!s.is_null(first)) {
    r.partition.emplace();
    columns(*r.partition, Read{s, first});
  }
  return r;
}

void take_rank_step(CaseRecord& r, const RankStepRow& row) {
  for (RankRecord& rank : r.ranks) {
    if (rank.rank == row.rank) rank.step_ns.push_back(row.ns);
  }
}

void read_children(sqlite::Database& db, const ByIndex& cases, std::int64_t only) {
  read_rows<PairRow>(db, "settings", cases, only, [](CaseRecord& r, PairRow row) {
    r.settings.emplace_back(std::move(row.name), std::move(row.value));
  });
  read_rows<PairRow>(db, "axes", cases, only, [](CaseRecord& r, PairRow row) {
    r.axes.emplace_back(std::move(row.name), std::move(row.value));
  });
  read_rows<PairRow>(db, "environment", cases, only,
                     [](CaseRecord& r, PairRow row) { r.environment[row.name] = std::move(row.value); });
  read_rows<TextRow>(db, "warnings", cases, only,
                     [](CaseRecord& r, TextRow row) { r.warnings.push_back(std::move(row.text)); });
  read_rows<SampleRow>(db, "samples", cases, only, [](CaseRecord& r, SampleRow row) { r.samples.push_back(row.ns); });
  read_rows<LossRow>(db, "losses", cases, only, [](CaseRecord& r, LossRow row) {
    if (row.loss) r.losses.push_back(*row.loss);
    if (row.grad_norm) r.grad_norms.push_back(*row.grad_norm);
  });
  read_rows<StepRow>(db, "steps", cases, only, [](CaseRecord& r, StepRow row) { r.steps.push_back(row); });
  read_rows<UnitRecord>(db, "unit_table", cases, only,
                        [](CaseRecord& r, UnitRecord row) { r.unit_table.push_back(std::move(row)); });
  read_rows<UnitMetrics>(db, "unit_metrics", cases, only,
                         [](CaseRecord& r, UnitMetrics row) { r.unit_metrics.push_back(row); });
  read_rows<PartitionDetail>(db, "partition_details", cases, only,
                             [](CaseRecord& r, PartitionDetail row) { r.partition_details.push_back(row); });
  read_rows<RankRecord>(db, "ranks", cases, only,
                        [](CaseRecord& r, RankRecord row) { r.ranks.push_back(std::move(row)); });
  read_rows<RankStepRow>(db, "rank_steps", cases, only, [](CaseRecord& r, RankStepRow row) { take_rank_step(r, row); });
}

void read_spans_of(sqlite::Database& db, std::int64_t case_index, CaseRecord& r) {
  auto s = db.prepare("SELECT data FROM spans WHERE case_index = ? ORDER BY rank");
  s.bind(case_index);
  while (s.step()) {
    const auto spans = decode_spans(s.blob(0));
    r.spans.insert(r.spans.end(), spans.begin(), spans.end());
  }
}

// Positions of the case's values on the sweep's axes, for sorting; what is outside sorts last.
std::vector<std::size_t> axis_positions(const SweepRecord& sweep, const CaseRecord& r) {
  std::vector<std::size_t> out;
  for (const auto& [name, values] : sweep.axes) {
    std::size_t at = values.size();
    for (const auto& [axis, value] : r.axes) {
      if (axis == name) at = static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin());
    }
    out.push_back(at);
  }
  return out;
}

void sort_by_axes(const SweepRecord& sweep, std::vector<CaseRecord>& cases) {
  std::vector<std::pair<std::vector<std::size_t>, CaseRecord>> keyed;
  keyed.reserve(cases.size());
  for (CaseRecord& r : cases) keyed.emplace_back(axis_positions(sweep, r), std::move(r));
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i] = std::move(keyed[i].second);
}

}  // namespace

SweepRecord Store::read_sweep() {
  SweepRecord sweep;
  auto s = db_.prepare("SELECT name, spec_text, spec_hash, command, created_at FROM sweep");
  if (!s.step()) {
    throw fsdp::ConfigError(
        fmt::format("[{}] holds no sweep yet; run `shardscope sweep SPEC.yaml -o DIR` first", db_.path()));
  }
  sweep.name = s.text(0);
  sweep.spec_text = s.text(1);
  sweep.spec_hash = s.text(2);
  sweep.command = s.text(3);
  sweep.created_at = s.integer(4);
  sweep.schema_version = kSchemaVersion;
  std::int64_t last = -1;
  auto axis = db_.prepare("SELECT axis, name, value FROM sweep_axes ORDER BY axis, position");
  while (axis.step()) {
    if (axis.integer(0) != last) sweep.axes.push_back({axis.text(1), {}});
    last = axis.integer(0);
    sweep.axes.back().second.push_back(axis.text(2));
  }
  auto environment = db_.prepare("SELECT name, value FROM sweep_environment");
  while (environment.step()) sweep.environment[environment.text(0)] = environment.text(1);
  return sweep;
}

std::vector<CaseRecord> Store::read_cases(Detail detail) {
  std::vector<CaseRecord> cases;
  std::vector<std::int64_t> indices;
  auto s = db_.prepare("SELECT " + case_columns() + " FROM cases ORDER BY case_index");
  while (s.step()) {
    indices.push_back(s.integer(0));
    cases.push_back(read_case_row(s));
  }
  ByIndex by_index;
  for (std::size_t i = 0; i < cases.size(); ++i) by_index[indices[i]] = &cases[i];
  read_children(db_, by_index, -1);
  if (detail == Detail::kAll) {
    for (std::size_t i = 0; i < cases.size(); ++i) read_spans_of(db_, indices[i], cases[i]);
  }
  if (has_sweep()) sort_by_axes(read_sweep(), cases);
  return cases;
}

CaseRecord Store::read_case(const std::string& id) {
  auto s = db_.prepare("SELECT " + case_columns() + " FROM cases WHERE id = ?");
  s.bind(id);
  if (!s.step())
    throw fsdp::ConfigError(fmt::format("[{}] holds no case {}; `shardscope report` lists the cases", db_.path(), id));
  const std::int64_t index = s.integer(0);
  CaseRecord r = read_case_row(s);
  read_children(db_, {{index, &r}}, index);
  read_spans_of(db_, index, r);
  return r;
}

std::vector<fsdp::Span> Store::read_spans(const std::string& id) {
  auto s = db_.prepare("SELECT case_index FROM cases WHERE id = ?");
  s.bind(id);
  CaseRecord r;
  if (s.step()) read_spans_of(db_, s.integer(0), r);
  return r.spans;
}

std::vector<std::pair<std::string, Status>> Store::statuses() {
  std::vector<std::pair<std::string, Status>> out;
  auto s = db_.prepare("SELECT id, status FROM cases ORDER BY case_index");
  while (s.step()) {
    Status status = Status::kOk;
    Read{s, 1}("status", Named<Status>{status, Status::kSkipped});
    out.emplace_back(s.text(0), status);
  }
  return out;
}

std::vector<std::string> Store::finished_ids() {
  std::vector<std::string> ids;
  for (auto& [id, status] : statuses()) ids.push_back(std::move(id));
  return ids;
}

}  // namespace harness
