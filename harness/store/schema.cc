#include "harness/store/schema.h"

#include <fmt/format.h>

#include "harness/store/rows.h"

namespace harness::store_detail {
namespace {

// Rows of one case, clustered by case: (case_index, position) is the key.
template <class T>
std::string child_table(const char* name) {
  std::string sql = fmt::format(
      "CREATE TABLE {} (case_index INTEGER NOT NULL REFERENCES cases(case_index) ON DELETE CASCADE, position INTEGER "
      "NOT NULL",
      name);
  for (const ColumnDefinition& c : columns_of<T>()) sql += fmt::format(", {} {}", c.name, c.definition);
  return sql + ", PRIMARY KEY (case_index, position)) WITHOUT ROWID;\n";
}

std::string schema_sql() {
  std::string cases = "CREATE TABLE cases (case_index INTEGER PRIMARY KEY";
  for (const ColumnDefinition& c : columns_of<CaseRecord>()) {
    cases += fmt::format(", {} {}{}", c.name, c.definition, c.name == "id" ? " UNIQUE" : "");
  }
  Partition p{};
  columns(p, [&](const std::string& name, fsdp::Nanos&) { cases += fmt::format(", {} INTEGER", name); });
  return "CREATE TABLE schema_version (version INTEGER NOT NULL);\n"
         "CREATE TABLE sweep (name TEXT NOT NULL, spec_text TEXT NOT NULL, spec_hash TEXT NOT NULL, command TEXT NOT "
         "NULL, created_at INTEGER NOT NULL);\n"
         "CREATE TABLE sweep_axes (axis INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, value TEXT "
         "NOT NULL, PRIMARY KEY (axis, position)) WITHOUT ROWID;\n"
         "CREATE TABLE sweep_environment (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;\n" +
         cases + ");\n" +
         // One row per attempt; a case that is run again keeps its earlier attempts here.
         "CREATE TABLE trials (trial INTEGER PRIMARY KEY, case_id TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT "
         "NULL, started_at INTEGER NOT NULL, finished_at INTEGER NOT NULL);\n" +
         child_table<PairRow>("settings") + child_table<PairRow>("axes") + child_table<PairRow>("environment") +
         child_table<TextRow>("warnings") + child_table<SampleRow>("samples") + child_table<LossRow>("losses") +
         child_table<StepRow>("steps") + child_table<RankStepRow>("rank_steps") +
         child_table<UnitRecord>("unit_table") + child_table<UnitMetrics>("unit_metrics") +
         child_table<PartitionDetail>("partition_details") + child_table<RankRecord>("ranks") +
         // Timeline of the partition's step, one row per rank; the format of `data` is in span_codec.cc.
         "CREATE TABLE spans (case_index INTEGER NOT NULL REFERENCES cases(case_index) ON DELETE CASCADE, rank INTEGER "
         "NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (case_index, rank));\n";
}

// row_sum: of the case's rows but spans; span_sum: of its spans. The empty id: the sweep's.
constexpr const char* kChecksums =
    "CREATE TABLE checksums (id TEXT PRIMARY KEY, row_sum INTEGER NOT NULL, span_sum INTEGER NOT NULL) WITHOUT ROWID;";

// Texts of files that settings name, each once, and which of them a case was run with. They came after the first
// release: a database may lack them.
constexpr const char* kFiles =
    "CREATE TABLE IF NOT EXISTS files (file INTEGER PRIMARY KEY, path TEXT NOT NULL, text BLOB NOT NULL);\n"
    "CREATE TABLE IF NOT EXISTS case_files (case_index INTEGER NOT NULL REFERENCES cases(case_index) ON DELETE "
    "CASCADE, "
    "file INTEGER NOT NULL REFERENCES files(file), PRIMARY KEY (case_index, file)) WITHOUT ROWID;\n";

bool empty(sqlite::Database& db) { return !db.prepare("SELECT 1 FROM sqlite_master LIMIT 1").step(); }

}  // namespace

bool has_table(sqlite::Database& db, const char* name) {
  auto s = db.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?");
  s.bind(std::string(name));
  return s.step();
}

namespace {
std::int64_t version_of(sqlite::Database& db) {
  auto s = db.prepare("SELECT version FROM schema_version");
  return s.step() ? s.integer(0) : 0;
}

void add_checksums(sqlite::Database& db) {
  sqlite::Transaction transaction(db);
  db.run(kChecksums);
  std::vector<std::pair<std::string, std::int64_t>> cases;
  auto s = db.prepare("SELECT id, case_index FROM cases");
  while (s.step()) cases.emplace_back(s.text(0), s.integer(1));
  for (const auto& [id, index] : cases) write_sums_of_case(db, id, index);
  write_sums_of_sweep(db);
  db.run(fmt::format("UPDATE schema_version SET version = {}", kSchemaVersion));
  transaction.commit();
}
}  // namespace

void create_schema(sqlite::Database& db) {
  if (!empty(db)) {
    check_schema(db);
    if (version_of(db) < kSchemaVersion) add_checksums(db);
    return db.run(kFiles);
  }
  sqlite::Transaction transaction(db);
  db.run(schema_sql() + kChecksums + kFiles);
  db.run(fmt::format("INSERT INTO schema_version VALUES ({})", kSchemaVersion));
  transaction.commit();
}

void check_schema(sqlite::Database& db) {
  if (!has_table(db, "schema_version")) {
    throw fsdp::ConfigError(
        fmt::format("[{}] is a database of another program; give the directory that a sweep wrote", db.path()));
  }
  const std::int64_t version = version_of(db);
  if (version > kSchemaVersion) {
    throw fsdp::ConfigError(
        fmt::format("[{}] was written by a newer shardscope (schema {}, this one knows {}); use that version",
                    db.path(), version, kSchemaVersion));
  }
  if (version < 1)
    throw fsdp::ConfigError(fmt::format(
        "[{}] has no schema version; the file is damaged: restore a copy, or run the sweep again", db.path()));
  check_file(db);
  if (version > 1 && !has_sums(db)) damaged(db.path(), "its checksums are gone");
}

}  // namespace harness::store_detail
