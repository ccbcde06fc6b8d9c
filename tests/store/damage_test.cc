// What becomes of a results.db when bytes of it change, or when somebody writes it to do harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <random>

#include "fsdp/core/errors.h"
#include "harness/store/checks.h"
#include "harness/store/store.h"
#include "tests/testing/synthetic_sweep.h"

namespace harness {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class StoreDamage : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "damage_" + std::to_string(::getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    const auto made = testing_support::synthetic_sweep({.cases = 6, .ranks = 2, .layers = 3});
    Store store = Store::open_for_writing(directory_);
    store.write_sweep(made.sweep);
    for (const CaseRecord& r : made.cases) store.write_case(r);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string file() const { return directory_ + "/results.db"; }
  std::string bytes() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& bytes) const { std::ofstream(file(), std::ios::binary) << bytes; }
  // A write that leaves the checksums of cases as they are, or makes them right again.
  void sql(const std::string& statement) const {
    sqlite::Database(file(), sqlite::Database::Mode::kWrite).run(statement);
  }
  std::string problem() const {
    try {
      Store store = Store::open(directory_);
      store.read_sweep();
      store.read_cases(Store::Detail::kAll);
    } catch (const fsdp::ConfigError& e) {
      return e.what();
    }
    return "accepted";
  }
  std::string directory_;
};

// Everything that is read, as one text.
std::string all_of(const std::string& directory) {
  Store store = Store::open(directory);
  std::string out;
  const auto add = [&](const auto&... v) { ((out += testing::PrintToString(v) + "|"), ...); };
  const SweepRecord s = store.read_sweep();
  add(s.name, s.spec_text, s.spec_hash, s.command, s.axes, s.environment, s.created_at);
  for (const CaseRecord& r : store.read_cases(Store::Detail::kAll)) {
    add(r.id, r.settings, r.axes, static_cast<int>(r.status), r.reason, r.units, r.largest_unit_bytes, r.samples,
        r.step_ns, r.step_mad_ns, r.step_ci_low_ns, r.step_ci_high_ns, r.ci_coverage, r.stopped_by, r.repetitions,
        r.tokens_per_s, r.peak_bytes, r.peak_cause, r.traced_step_ns, r.partition, r.partition_rank, r.partition_step,
        r.overlap_pct, r.collectives, r.communicated_bytes, r.observer_ratio, r.emulated, r.predicted, r.losses,
        r.grad_norms, r.environment, r.warnings, r.started_at, r.finished_at);
    for (const UnitRecord& u : r.unit_table)
      add(u.name, u.parameters, u.unsharded_bytes, u.shard_bytes, u.reduce_bytes, u.strategy);
    for (const UnitMetrics& m : r.unit_metrics)
      add(m.unit, static_cast<int>(m.pass), m.all_gathers, m.reduce_scatters, m.exposed_ns, m.hidden_ns, m.compute_ns);
    for (const PartitionDetail& d : r.partition_details)
      add(static_cast<int>(d.cls), d.unit, static_cast<int>(d.pass), static_cast<int>(d.collective), d.ns);
    for (const RankRecord& k : r.ranks) add(k.rank, k.peak.total, k.peak.at_peak, k.category_peaks, k.step_ns);
    for (const StepRow& t : r.steps) add(t.rank, t.step, t.length, t.classes);
    for (const fsdp::Span& p : r.spans) add(p.id, p.rank, p.step, p.unit, p.begin, p.end, p.issued, p.bytes, p.waits);
  }
  return out;
}

// 660 flips, as many as in the attack of which 13 changed answers silently.
TEST_F(StoreDamage, AByteThatFlipsChangesNoAnswerSilently) {
  const std::string whole = bytes(), answer = all_of(directory_);
  std::mt19937_64 random(20'260'601);
  int refused = 0, same = 0;
  for (int i = 0; i < 660; ++i) {
    std::string damaged = whole;
    const std::size_t at = random() % whole.size();
    damaged[at] = static_cast<char>(damaged[at] ^ static_cast<char>(1 + random() % 255));
    put(damaged);
    try {
      EXPECT_EQ(all_of(directory_), answer) << "flip " << i << " at byte " << at;
      ++same;
    } catch (const fsdp::ConfigError& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("; ")) << "a remedy";
      ++refused;
    }
    for (const char* other : {"-wal", "-shm", "-journal"}) fs::remove(file() + other);
  }
  EXPECT_EQ(refused + same, 660);
  EXPECT_GT(refused, 100);
}

TEST_F(StoreDamage, AChangedRowIsNamedByItsCase) {
  sql("UPDATE cases SET step_ns = step_ns + 1 WHERE case_index = 2");
  EXPECT_THAT(problem(), HasSubstr("is not as it was written"));
}

TEST_F(StoreDamage, RowsThatAreGoneOrBelongToNobodyAreDamage) {
  const std::string whole = bytes();
  for (const char* statement :
       {"DELETE FROM samples WHERE case_index = 1", "DELETE FROM cases WHERE case_index = 3",
        "UPDATE samples SET case_index = 77 WHERE case_index = 1", "DELETE FROM spans WHERE case_index = 1",
        "DELETE FROM checksums WHERE id != ''", "DROP TABLE checksums", "UPDATE sweep SET name = 'other'",
        "UPDATE sweep_environment SET value = 'x'", "UPDATE cases SET id = id || 'x' WHERE case_index = 1"}) {
    put(whole);
    sql(std::string("PRAGMA foreign_keys = OFF; ") + statement);
    EXPECT_THAT(problem(), HasSubstr("is damaged: ")) << statement;
  }
}

// With the checksums of somebody who knows how they are made: the rows themselves are looked at.
TEST_F(StoreDamage, RowsThatCannotBeTrueAreRefusedWhateverTheirChecksum) {
  const std::string whole = bytes();
  for (const char* statement : {"UPDATE sweep_axes SET axis = -1 WHERE axis = 0",
                                "UPDATE sweep_axes SET axis = axis + 5 WHERE axis = 1",
                                "UPDATE sweep_axes SET position = position + 7 WHERE axis = 0",
                                "UPDATE cases SET step_ns = -5",
                                "UPDATE cases SET step_ns = 9223372036854775807",
                                "UPDATE cases SET step_ns = 'soon' WHERE case_index = 1",
                                "UPDATE cases SET emulated = 3",
                                "UPDATE cases SET status = 'fine'",
                                "UPDATE cases SET partition_rank = -1",
                                "UPDATE cases SET partition_rank = 99999999999",
                                "UPDATE cases SET reason = x'00ff'",
                                "UPDATE unit_metrics SET unit = 4000",
                                "UPDATE unit_metrics SET unit = -2",
                                "UPDATE unit_metrics SET pass = 'up'",
                                "UPDATE partition_details SET unit = 4000",
                                "UPDATE ranks SET rank = -1",
                                "UPDATE steps SET length_ns = -1",
                                "UPDATE steps SET rank = 2000000",
                                "UPDATE spans SET count = 7",
                                "UPDATE spans SET rank = rank + 10",
                                "UPDATE spans SET data = x'0101'",
                                "UPDATE spans SET data = zeroblob(100000)",
                                "UPDATE samples SET ns = 1.5"}) {
    put(whole);
    sql(std::string(statement) + "; DROP TABLE checksums; UPDATE schema_version SET version = 1");
    const std::string said = problem();
    EXPECT_NE(said, "accepted") << statement;
    EXPECT_THAT(said, HasSubstr("[")) << statement;
  }
}

TEST_F(StoreDamage, ADatabaseThatComputesIsRefused) {
  const std::string whole = bytes();
  for (const char* statement :
       {"CREATE TRIGGER t AFTER INSERT ON cases BEGIN DELETE FROM samples; END",
        "ALTER TABLE samples RENAME TO s2; CREATE VIEW samples AS SELECT * FROM s2",
        "CREATE TABLE big (a INTEGER, b BLOB GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL)"}) {
    put(whole);
    sql(statement);
    EXPECT_THAT(problem(), HasSubstr("which computes and which no sweep makes")) << statement;
  }
}

TEST_F(StoreDamage, EveryTableOfACaseCountsInItsChecksum) {
  const std::string whole = bytes();
  std::vector<std::string> tables;
  {
    sqlite::Database db(file(), sqlite::Database::Mode::kRead);
    auto s = db.prepare(
        "SELECT m.name, (SELECT name FROM pragma_table_info(m.name) WHERE name NOT IN ('case_index', 'position') AND "
        "type = 'TEXT' OR name = 'ns' OR name = 'rank' LIMIT 1) FROM sqlite_master m WHERE type = 'table' AND EXISTS "
        "(SELECT 1 FROM pragma_table_info(m.name) WHERE name = 'case_index')");
    while (s.step()) tables.push_back(s.text(0));
  }
  EXPECT_GE(tables.size(), 13u);
  for (const std::string& table : tables) {
    put(whole);
    sql("PRAGMA foreign_keys = OFF; DELETE FROM " + table + " WHERE case_index = 1");
    if (bytes() == whole) continue;  // a case without rows there
    EXPECT_NE(problem(), "accepted") << table;
  }
}

TEST(RecordProblem, ATrueRecordHasNone) {
  for (const CaseRecord& r : testing_support::synthetic_sweep({.cases = 12}).cases) EXPECT_EQ(problem_of(r), "");
}

}  // namespace
}  // namespace harness
