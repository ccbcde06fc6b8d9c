// Writing of results.db.
#include <algorithm>

#include "harness/store/rows.h"
#include "harness/store/span_codec.h"
#include "harness/store/store.h"

namespace harness {
namespace {

using namespace store_detail;

template <class T>
void write_rows(sqlite::Database& db, const std::string& table, std::int64_t case_index, const std::vector<T>& rows) {
  if (rows.empty()) return;
  auto s = db.prepare("INSERT INTO " + table + " (case_index, position, " + column_list<T>() + ") VALUES (" +
                      placeholders<T>(2) + ")");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    s.bind(case_index);
    s.bind(static_cast<std::int64_t>(i));
    bind_row(s, rows[i]);
    s.execute();
  }
}

template <class Pairs>
std::vector<PairRow> pair_rows(const Pairs& pairs) {
  std::vector<PairRow> rows;
  for (const auto& [name, value] : pairs) rows.push_back({name, value});
  return rows;
}

// Inserts the row of table cases and returns its index.
std::int64_t write_case_row(sqlite::Database& db, const CaseRecord& r) {
  auto erase = db.prepare("DELETE FROM cases WHERE id = ?");
  erase.bind(r.id);
  erase.execute();

  std::string names = column_list<CaseRecord>(), marks = placeholders<CaseRecord>(0);
  Partition p = r.partition.value_or(Partition{});
  columns(p, [&](const std::string& name, fsdp::Nanos&) { names += ", " + name, marks += ", ?"; });
  auto insert = db.prepare("INSERT INTO cases (" + names + ") VALUES (" + marks + ")");
  bind_row(insert, r);
  columns(p, [&](const std::string&, fsdp::Nanos& ns) { r.partition ? insert.bind(ns) : insert.bind_null(); });
  insert.execute();
  auto last = db.prepare("SELECT last_insert_rowid()");
  last.step();
  return last.integer(0);
}

void write_trial(sqlite::Database& db, const CaseRecord& r) {
  auto s = db.prepare("INSERT INTO trials (case_id, status, reason, started_at, finished_at) VALUES (?, ?, ?, ?, ?)");
  s.bind(r.id);
  s.bind(std::string(name_of(r.status)));
  s.bind(r.reason);
  s.bind(r.started_at);
  s.bind(r.finished_at);
  s.execute();
}

void write_losses(sqlite::Database& db, std::int64_t index, const CaseRecord& r) {
  std::vector<LossRow> rows(std::max(r.losses.size(), r.grad_norms.size()));
  for (std::size_t i = 0; i < r.losses.size(); ++i) rows[i].loss = r.losses[i];
  for (std::size_t i = 0; i < r.grad_norms.size(); ++i) rows[i].grad_norm = r.grad_norms[i];
  write_rows(db, "losses", index, rows);
}

// The text's number in table files, where it is written if it is not there.
std::int64_t file_index(sqlite::Database& db, const FileText& f) {
  auto known = db.prepare("SELECT file FROM files WHERE path = ? AND text = ?");
  known.bind(f.path);
  known.bind_blob(f.text);
  if (known.step()) return known.integer(0);
  auto insert = db.prepare("INSERT INTO files (path, text) VALUES (?, ?)");
  insert.bind(f.path);
  insert.bind_blob(f.text);
  insert.execute();
  auto last = db.prepare("SELECT last_insert_rowid()");
  last.step();
  return last.integer(0);
}

void write_files(sqlite::Database& db, std::int64_t index, const Files& files) {
  for (const auto& f : files) {
    auto s = db.prepare("INSERT OR IGNORE INTO case_files (case_index, file) VALUES (?, ?)");
    s.bind(index);
    s.bind(file_index(db, *f));
    s.execute();
  }
}

void write_spans(sqlite::Database& db, std::int64_t index, const std::vector<fsdp::Span>& spans) {
  std::map<int, std::vector<fsdp::Span>> by_rank;
  for (const fsdp::Span& s : spans) by_rank[s.rank].push_back(s);
  for (const auto& [rank, list] : by_rank) {
    auto s = db.prepare("INSERT INTO spans (case_index, rank, count, data) VALUES (?, ?, ?, ?)");
    s.bind(index);
    s.bind(std::int64_t{rank});
    s.bind(static_cast<std::int64_t>(list.size()));
    s.bind_blob(encode_spans(list));
    s.execute();
  }
}

}  // namespace

void Store::write_sweep(const SweepRecord& sweep) {
  sqlite::Transaction transaction(db_);
  db_.run("DELETE FROM sweep; DELETE FROM sweep_axes; DELETE FROM sweep_environment");
  auto s = db_.prepare("INSERT INTO sweep (name, spec_text, spec_hash, command, created_at) VALUES (?, ?, ?, ?, ?)");
  for (const std::string* text : {&sweep.name, &sweep.spec_text, &sweep.spec_hash, &sweep.command}) s.bind(*text);
  s.bind(sweep.created_at);
  s.execute();
  auto axis = db_.prepare("INSERT INTO sweep_axes (axis, position, name, value) VALUES (?, ?, ?, ?)");
  for (std::size_t a = 0; a < sweep.axes.size(); ++a) {
    for (std::size_t i = 0; i < sweep.axes[a].second.size(); ++i) {
      axis.bind(static_cast<std::int64_t>(a));
      axis.bind(static_cast<std::int64_t>(i));
      axis.bind(sweep.axes[a].first);
      axis.bind(sweep.axes[a].second[i]);
      axis.execute();
    }
  }
  auto environment = db_.prepare("INSERT INTO sweep_environment (name, value) VALUES (?, ?)");
  for (const auto& [name, value] : sweep.environment) {
    environment.bind(name);
    environment.bind(value);
    environment.execute();
  }
  for (const auto& f : sweep.files) file_index(db_, *f);
  write_sums_of_sweep(db_);
  transaction.commit();
}

void Store::write_case(const CaseRecord& r) {
  sqlite::Transaction transaction(db_);
  const std::int64_t index = write_case_row(db_, r);
  write_trial(db_, r);
  write_rows(db_, "settings", index, pair_rows(r.settings));
  write_rows(db_, "axes", index, pair_rows(r.axes));
  write_rows(db_, "environment", index, pair_rows(r.environment));
  std::vector<TextRow> warnings;
  for (const std::string& w : r.warnings) warnings.push_back({w});
  write_rows(db_, "warnings", index, warnings);
  std::vector<SampleRow> samples;
  for (const fsdp::Nanos ns : r.samples) samples.push_back({ns});
  write_rows(db_, "samples", index, samples);
  write_losses(db_, index, r);
  write_rows(db_, "steps", index, r.steps);
  std::vector<RankStepRow> rank_steps;
  for (const RankRecord& rank : r.ranks) {
    for (std::size_t i = 0; i < rank.step_ns.size(); ++i)
      rank_steps.push_back({rank.rank, static_cast<int>(i), rank.step_ns[i]});
  }
  write_rows(db_, "rank_steps", index, rank_steps);
  write_rows(db_, "unit_table", index, r.unit_table);
  write_rows(db_, "unit_metrics", index, r.unit_metrics);
  write_rows(db_, "partition_details", index, r.partition_details);
  write_rows(db_, "ranks", index, r.ranks);
  write_files(db_, index, r.files);
  write_spans(db_, index, r.spans);
  write_sums_of_case(db_, r.id, index);
  transaction.commit();
}

}  // namespace harness
