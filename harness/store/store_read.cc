// Reading of results.db: each table in one pass, rows handed to their case.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <unordered_map>

#include "fsdp/core/errors.h"
#include "harness/store/rows.h"
#include "harness/store/schema.h"
#include "harness/store/span_codec.h"
#include "harness/store/store.h"

namespace harness {
namespace {

using namespace store_detail;

// A case while it is read, with the checksums of what was read of it.
struct Slot {
  CaseRecord record;
  RowSum rows, spans;
};
using ByIndex = std::unordered_map<std::int64_t, Slot*>;

// Calls take(record, row) for every row of the table, cases apart, in order. `only` >= 0: that case alone.
template <class T, class F>
void read_rows(sqlite::Database& db, const std::string& table, const ByIndex& cases, std::int64_t only, F&& take) {
  auto s = db.prepare("SELECT case_index, position, " + column_list<T>() + " FROM " + table +
                      (only >= 0 ? " WHERE case_index = ?" : "") + " ORDER BY case_index, position");
  if (only >= 0) s.bind(only);
  std::int64_t last = -1;
  Slot* slot = nullptr;
  while (s.step()) {
    if (const std::int64_t index = s.integer(0); slot == nullptr || index != last) {
      const auto found = cases.find(index);
      if (found == cases.end()) damaged(db.path(), "table " + table + " holds rows of a case that is not there");
      slot = found->second;
      last = index;
    }
    slot->rows.add(table, s, 1);
    T row{};
    columns(row, Read{s, 2});
    take(slot->record, std::move(row));
  }
}

std::string case_columns() {
  std::string names = "case_index, " + column_list<CaseRecord>();
  Partition p{};
  columns(p, [&](const std::string& name, fsdp::Nanos&) { names += ", " + name; });
  return names;
}

Slot read_case_row(const sqlite::Statement& s) {
  Slot slot;
  slot.rows.add("cases", s, 1);
  CaseRecord& r = slot.record;
  Read reader{s, 1};
  columns(r, reader);
  const int first = 1 + static_cast<int>(columns_of<CaseRecord>().size());
  if (!s.is_null(first)) {
    r.partition.emplace();
    columns(*r.partition, Read{s, first});
  }
  return slot;
}

void take_rank_step(CaseRecord& r, const RankStepRow& row) {
  for (RankRecord& rank : r.ranks) {
    if (rank.rank == row.rank) rank.step_ns.push_back(row.ns);
  }
}

// Cases share the texts that they have in common. Databases of the first release have none.
void read_files(sqlite::Database& db, const ByIndex& cases, std::int64_t only) {
  if (!has_table(db, "case_files")) return;
  auto s = db.prepare("SELECT c.case_index, f.file, f.path, f.text FROM case_files c JOIN files f ON f.file = c.file" +
                      std::string(only >= 0 ? " WHERE c.case_index = ?" : "") + " ORDER BY c.case_index, f.file");
  if (only >= 0) s.bind(only);
  std::unordered_map<std::int64_t, std::shared_ptr<const FileText>> texts;
  while (s.step()) {
    const auto found = cases.find(s.integer(0));
    if (found == cases.end()) damaged(db.path(), "table case_files holds rows of a case that is not there");
    found->second->rows.add("case_files", s, 1);
    auto& text = texts[s.integer(1)];
    if (!text) text = std::make_shared<FileText>(FileText{s.text(2), s.blob(3)});
    found->second->record.files.push_back(text);
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
  read_files(db, cases, only);
}

void read_spans_of(sqlite::Database& db, std::int64_t case_index, Slot& slot) {
  auto s = db.prepare("SELECT rank, count, data FROM spans WHERE case_index = ? ORDER BY rank");
  s.bind(case_index);
  while (s.step()) {
    slot.spans.add("spans", s, 0);
    std::vector<fsdp::Span> spans = decode_spans(s.blob(2));
    const auto elsewhere = [&](const fsdp::Span& span) { return span.rank != s.integer(0); };
    if (s.integer(1) != static_cast<std::int64_t>(spans.size()) || std::any_of(spans.begin(), spans.end(), elsewhere))
      damaged(db.path(), "a timeline is of another rank or length");
    std::move(spans.begin(), spans.end(), std::back_inserter(slot.record.spans));
  }
}

// `with_spans`: they were read.
void verify(sqlite::Database& db, const Slot& slot, bool with_spans) {
  const CaseRecord& r = slot.record;
  if (has_sums(db)) {
    const auto stored = read_sums(db, r.id);
    if (!stored || stored->rows != slot.rows.value() || (with_spans && stored->spans != slot.spans.value()))
      damaged(db.path(), fmt::format("the case {} is not as it was written", r.id));
  }
  if (const std::string problem = problem_of(r); !problem.empty())
    damaged(db.path(), fmt::format("in the case {}, {}", r.id, problem));
}

Sums sums_of_case(sqlite::Database& db, std::int64_t index) {
  auto s = db.prepare("SELECT " + case_columns() + " FROM cases WHERE case_index = ?");
  s.bind(index);
  SHARDSCOPE_CHECK(s.step(), std::to_string(index));
  Slot slot = read_case_row(s);
  read_children(db, {{index, &slot}}, index);
  read_spans_of(db, index, slot);
  return {slot.rows.value(), slot.spans.value()};
}

// The sweep without its checks, and the checksum of its rows.
std::pair<SweepRecord, Sums> read_sweep_rows(sqlite::Database& db) {
  SweepRecord sweep;
  RowSum sum;
  auto s = db.prepare("SELECT name, spec_text, spec_hash, command, created_at FROM sweep");
  if (!s.step()) {
    throw fsdp::ConfigError(
        fmt::format("[{}] holds no sweep yet; run `shardscope sweep SPEC.yaml -o DIR` first", db.path()));
  }
  sum.add("sweep", s, 0);
  Read reader{s, 0};
  for (std::string* text : {&sweep.name, &sweep.spec_text, &sweep.spec_hash, &sweep.command}) reader("sweep", *text);
  reader("created_at", sweep.created_at);
  sweep.schema_version = kRecordVersion;
  auto axis = db.prepare("SELECT axis, position, name, value FROM sweep_axes ORDER BY axis, position");
  while (axis.step()) {
    sum.add("sweep_axes", axis, 0);
    std::int64_t at = 0, position = 0;
    std::string name, value;
    Read row{axis, 0};
    row("axis", at), row("position", position), row("name", name), row("value", value);
    if (at == static_cast<std::int64_t>(sweep.axes.size()) && position == 0) sweep.axes.push_back({name, {}});
    if (sweep.axes.empty() || at + 1 != static_cast<std::int64_t>(sweep.axes.size()) ||
        name != sweep.axes.back().first || position != static_cast<std::int64_t>(sweep.axes.back().second.size()))
      damaged(db.path(), "the axes of the sweep are not in order");
    sweep.axes.back().second.push_back(value);
  }
  auto environment = db.prepare("SELECT name, value FROM sweep_environment ORDER BY name");
  while (environment.step()) {
    sum.add("sweep_environment", environment, 0);
    PairRow row;
    columns(row, Read{environment, 0});
    sweep.environment[row.name] = std::move(row.value);
  }
  return {std::move(sweep), {sum.value(), 0}};
}

SweepRecord read_checked_sweep(sqlite::Database& db) {
  auto [sweep, sums] = read_sweep_rows(db);
  if (has_sums(db)) {
    const auto stored = read_sums(db, kSumOfSweep);
    if (!stored || stored->rows != sums.rows) damaged(db.path(), "the sweep is not as it was written");
  }
  return std::move(sweep);
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

void store_detail::write_sums_of_case(sqlite::Database& db, const std::string& id, std::int64_t index) {
  write_sums(db, id, sums_of_case(db, index));
}

void store_detail::write_sums_of_sweep(sqlite::Database& db) {
  if (db.prepare("SELECT 1 FROM sweep").step()) write_sums(db, kSumOfSweep, read_sweep_rows(db).second);
}

SweepRecord Store::read_sweep() {
  const sqlite::Snapshot snapshot(db_);
  SweepRecord sweep = read_checked_sweep(db_);
  if (!has_table(db_, "files")) return sweep;
  auto file = db_.prepare("SELECT path, text FROM files ORDER BY file DESC");
  while (file.step()) sweep.files.push_back(std::make_shared<FileText>(FileText{file.text(0), file.blob(1)}));
  return sweep;
}

std::vector<CaseRecord> Store::read_cases(Detail detail) {
  const sqlite::Snapshot snapshot(db_);
  std::vector<Slot> slots;
  std::vector<std::int64_t> indices;
  auto s = db_.prepare("SELECT " + case_columns() + " FROM cases ORDER BY case_index");
  while (s.step()) {
    indices.push_back(s.integer(0));
    slots.push_back(read_case_row(s));
  }
  if (has_sums(db_) && count_sums(db_) != static_cast<std::int64_t>(slots.size()))
    damaged(db_.path(), "cases are missing");
  ByIndex by_index;
  for (std::size_t i = 0; i < slots.size(); ++i) by_index[indices[i]] = &slots[i];
  read_children(db_, by_index, -1);
  std::vector<CaseRecord> cases;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (detail == Detail::kAll) read_spans_of(db_, indices[i], slots[i]);
    verify(db_, slots[i], detail == Detail::kAll);
    cases.push_back(std::move(slots[i].record));
  }
  if (has_sweep()) sort_by_axes(read_checked_sweep(db_), cases);
  return cases;
}

CaseRecord Store::read_case(const std::string& id) {
  const sqlite::Snapshot snapshot(db_);
  auto s = db_.prepare("SELECT " + case_columns() + " FROM cases WHERE id = ?");
  s.bind(id);
  if (!s.step())
    throw fsdp::ConfigError(fmt::format("[{}] holds no case {}; `shardscope report` lists the cases", db_.path(), id));
  const std::int64_t index = s.integer(0);
  Slot slot = read_case_row(s);
  read_children(db_, {{index, &slot}}, index);
  read_spans_of(db_, index, slot);
  verify(db_, slot, true);
  return std::move(slot.record);
}

std::vector<fsdp::Span> Store::read_spans(const std::string& id) {
  const sqlite::Snapshot snapshot(db_);
  auto s = db_.prepare("SELECT case_index FROM cases WHERE id = ?");
  s.bind(id);
  Slot slot;
  if (s.step()) read_spans_of(db_, s.integer(0), slot);
  return std::move(slot.record.spans);
}

std::vector<std::string> Store::traced_ids() {
  std::vector<std::string> ids;
  auto s = db_.prepare("SELECT id FROM cases WHERE case_index IN (SELECT case_index FROM spans) ORDER BY case_index");
  while (s.step()) ids.push_back(s.text(0));
  return ids;
}

std::vector<std::string> Store::passing_ids() {
  std::vector<std::string> ids;
  auto s = db_.prepare(
      "SELECT id FROM cases WHERE case_index IN (SELECT case_index FROM environment WHERE name = ?) ORDER BY "
      "case_index");
  s.bind(std::string(kPassingTrouble));
  while (s.step()) ids.push_back(s.text(0));
  return ids;
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
