// What must hold of a results.db before a row of it is believed. A file may come from anywhere, and disks err.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "harness/store/records.h"
#include "harness/store/sqlite.h"

namespace harness {

// What cannot be true of a record that a trial made: a negative time, a unit that is not in its table. Empty: nothing.
std::string problem_of(const CaseRecord& r);

namespace store_detail {

[[noreturn]] void damaged(const std::string& path, const std::string& what);

// The pages are those of a database (PRAGMA quick_check), and nothing in it computes: no trigger, view, virtual table
// or generated column.
void check_file(sqlite::Database& db);

// A checksum of rows: CRC-32 of names and values of their columns, in order; absent values do not count, so that a
// column that is added later changes nothing.
class RowSum {
 public:
  // Columns [first, count) of the present row.
  void add(const std::string& table, const sqlite::Statement& s, int first);
  std::uint32_t value() const { return sum_; }

 private:
  void add(const void* data, std::size_t n);
  std::uint32_t sum_ = 0;
};

// Of a case, or, under the empty id, of the sweep.
struct Sums {
  std::uint32_t rows = 0, spans = 0;
};

// Table checksums: a row a case, and one of the sweep. Databases of schema version 1 have none.
inline constexpr const char* kSumOfSweep = "";
bool has_sums(sqlite::Database& db);
void write_sums(sqlite::Database& db, const std::string& id, const Sums& sums);
std::optional<Sums> read_sums(sqlite::Database& db, const std::string& id);
std::int64_t count_sums(sqlite::Database& db);  // of cases

// What the rows of now sum to becomes what they must sum to (store_read.cc).
void write_sums_of_case(sqlite::Database& db, const std::string& id, std::int64_t index);
void write_sums_of_sweep(sqlite::Database& db);

}  // namespace store_detail
}  // namespace harness
