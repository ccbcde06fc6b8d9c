#include "harness/store/checks.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

// Above them sums overflow: 104 days in nanoseconds, 9 PB. A span's clock may start anywhere.
constexpr std::int64_t kMost = std::int64_t{1} << 53, kMostOfClock = std::int64_t{1} << 60;
constexpr int kMostRanks = 1 << 20;

class Problem {
 public:
  void amount(const char* name, std::int64_t v) {
    if (v < 0 || v > kMost) say(fmt::format("{} is {}", name, v));
  }
  template <class T>
  void amount(const char* name, const std::optional<T>& v) {
    if (v) amount(name, static_cast<std::int64_t>(*v));
  }
  void rank(int v) {
    if (v < 0 || v >= kMostRanks) say(fmt::format("rank is {}", v));
  }
  // Of a record that has units.
  void unit(const char* name, std::int64_t v, std::size_t units) {
    if (v < -1 || (units > 0 && v >= static_cast<std::int64_t>(units)))
      say(fmt::format("{} is {}, of {} units", name, v, units));
  }
  void say(const std::string& what) {
    if (text.empty()) text = what;
  }
  std::string text;
};

void check_numbers(const CaseRecord& r, Problem& p) {
  for (const auto& [name, v] : {std::pair{"units", r.units},
                                {"largest_unit_bytes", r.largest_unit_bytes},
                                {"step_ns", r.step_ns},
                                {"step_mad_ns", r.step_mad_ns},
                                {"step_ci_low_ns", r.step_ci_low_ns},
                                {"step_ci_high_ns", r.step_ci_high_ns},
                                {"peak_bytes", r.peak_bytes},
                                {"traced_step_ns", r.traced_step_ns},
                                {"collectives", r.collectives},
                                {"communicated_bytes", r.communicated_bytes}})
    p.amount(name, v);
  p.amount("repetitions", r.repetitions);
  p.amount("partition_rank", r.partition_rank);
  p.amount("partition_step", r.partition_step);
  p.amount("started_at", r.started_at);
  p.amount("finished_at", r.finished_at);
  for (const fsdp::Nanos ns : r.samples) p.amount("a sample", ns);
  if (r.partition)
    for (const fsdp::Nanos ns : *r.partition) p.amount("a class of the partition", ns);
}

void check_tables(const CaseRecord& r, Problem& p) {
  const std::size_t units = r.unit_table.size();
  for (const UnitRecord& u : r.unit_table)
    for (const std::int64_t v : {u.parameters, u.unsharded_bytes, u.shard_bytes, u.reduce_bytes}) p.amount("a unit", v);
  for (const UnitMetrics& m : r.unit_metrics) {
    p.unit("the unit of a metric", m.unit, units);
    for (const std::int64_t v :
         {std::int64_t{m.all_gathers}, std::int64_t{m.reduce_scatters}, std::int64_t{m.other_collectives},
          m.all_gather_bytes, m.reduce_scatter_bytes, m.all_gather_ns, m.reduce_scatter_ns, m.exposed_ns, m.hidden_ns,
          m.compute_ns, m.copy_ns})
      p.amount("a metric of a unit", v);
  }
  for (const PartitionDetail& d : r.partition_details) {
    p.unit("the unit of a part of the partition", d.unit, units);
    p.amount("a part of the partition", d.ns);
  }
  for (const StepRow& s : r.steps) {
    p.rank(s.rank);
    p.amount("a step", s.step);
    p.amount("the length of a step", s.length);
    for (const fsdp::Nanos ns : s.classes) p.amount("a class of a step", ns);
  }
  for (const RankRecord& k : r.ranks) {
    p.rank(k.rank);
    p.unit("the unit of a peak", k.peak.where.unit, units);
    p.amount("a peak", k.peak.total);
    for (const fsdp::Bytes b : k.peak.at_peak) p.amount("a part of a peak", b);
    for (const fsdp::Bytes b : k.category_peaks) p.amount("a category's peak", b);
    for (const fsdp::Nanos ns : k.step_ns) p.amount("a step of a rank", ns);
  }
}

void check_spans(const CaseRecord& r, Problem& p) {
  const auto far = [](fsdp::Nanos t) { return t < -kMostOfClock || t > kMostOfClock; };
  for (const fsdp::Span& s : r.spans) {
    p.rank(s.rank);
    p.unit("the unit of a span", s.unit, 0);
    p.amount("the bytes of a span", s.bytes);
    if (far(s.begin) || far(s.end) || far(s.issued)) p.say("the time of a span is none");
  }
}

// A word of SQL that makes a table or an index compute when it is read or checked.
bool computes(const std::string& sql) {
  std::string word;
  for (const char c : sql + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      continue;
    }
    for (const char* w : {"VIRTUAL", "GENERATED", "AS", "CHECK", "SELECT"})
      if (word == w) return true;
    word.clear();
  }
  return false;
}

}  // namespace

std::string problem_of(const CaseRecord& r) {
  Problem p;
  check_numbers(r, p);
  check_tables(r, p);
  check_spans(r, p);
  return p.text;
}

namespace store_detail {

void damaged(const std::string& path, const std::string& what) {
  throw fsdp::ConfigError(
      fmt::format("[{}] is damaged: {}; restore a copy, or move it away and run the sweep again", path, what));
}

void check_file(sqlite::Database& db) {
  auto objects = db.prepare("SELECT type, name, coalesce(sql, '') FROM sqlite_master");
  while (objects.step()) {
    const std::string type = objects.text(0);
    if ((type != "table" && type != "index") || computes(objects.text(2)))
      throw fsdp::ConfigError(fmt::format(
          "[{}] holds the {} \"{}\", which computes and which no sweep makes; give the directory that a sweep wrote",
          db.path(), type, objects.text(1)));
  }
  auto check = db.prepare("PRAGMA quick_check(1)");
  if (!check.step()) damaged(db.path(), "its pages cannot be checked");
  std::string said = check.text(0);
  std::replace(said.begin(), said.end(), '\n', ' ');
  if (said != "ok") damaged(db.path(), said);
}

void RowSum::add(const void* data, std::size_t n) {
  sum_ = static_cast<std::uint32_t>(crc32_z(sum_, static_cast<const Bytef*>(data), n));
}

void RowSum::add(const std::string& table, const sqlite::Statement& s, int first) {
  add(table.c_str(), table.size() + 1);
  for (int c = first; c < s.columns(); ++c) {
    const int type = s.type(c);
    if (type == SQLITE_NULL) continue;
    const char* name = s.column_name(c);
    add(name, std::char_traits<char>::length(name) + 1);
    add(&type, sizeof type);
    if (type == SQLITE_INTEGER) {
      const std::int64_t v = s.integer(c);
      add(&v, sizeof v);
    } else if (type == SQLITE_FLOAT) {
      const double v = s.real(c);
      add(&v, sizeof v);
    } else {
      const std::string v = s.blob(c);
      const std::uint64_t n = v.size();
      add(&n, sizeof n);
      add(v.data(), v.size());
    }
  }
}

bool has_sums(sqlite::Database& db) {
  return db.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'checksums'").step();
}

void write_sums(sqlite::Database& db, const std::string& id, const Sums& sums) {
  auto s = db.prepare("INSERT OR REPLACE INTO checksums (id, row_sum, span_sum) VALUES (?, ?, ?)");
  s.bind(id);
  s.bind(std::int64_t{sums.rows});
  s.bind(std::int64_t{sums.spans});
  s.execute();
}

std::optional<Sums> read_sums(sqlite::Database& db, const std::string& id) {
  auto s = db.prepare("SELECT row_sum, span_sum FROM checksums WHERE id = ?");
  s.bind(id);
  if (!s.step() || s.type(0) != SQLITE_INTEGER || s.type(1) != SQLITE_INTEGER) return std::nullopt;
  const auto low = [&](int c) { return static_cast<std::uint32_t>(s.integer(c)); };
  if (s.integer(0) != low(0) || s.integer(1) != low(1)) return std::nullopt;
  return Sums{low(0), low(1)};
}

std::int64_t count_sums(sqlite::Database& db) {
  auto s = db.prepare("SELECT count(*) FROM checksums WHERE id != ?");
  s.bind(std::string(kSumOfSweep));
  s.step();
  return s.integer(0);
}

}  // namespace store_detail
}  // namespace harness
