// Targets that read binary files: results.db, the timelines in it, safetensors, .pt2.
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "fsdp/core/errors.h"
#include "fsdp/module/safetensors.h"
#include "harness/store/span_codec.h"
#include "harness/store/store.h"
#include "harness/workload/exported_model.h"
#include "reports/csv.h"
#include "reports/html.h"
#include "tests/fuzz/targets.h"
#include "tests/testing/synthetic_sweep.h"

namespace harness::fuzz {
namespace {

constexpr std::size_t kMostInflated = 1032;  // bytes that a byte of deflate can hold

void require(bool holds) {
  if (!holds) std::abort();
}

// A file that holds the bytes.
std::string file_of(const void* bytes, std::size_t n, const std::string& name) {
  const std::string path = "/dev/shm/shardscope-fuzz-" + std::to_string(getpid()) + name;
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(file >= 0 && pwrite(file, bytes, n, 0) == static_cast<ssize_t>(n));
  close(file);
  return path;
}

void read_all(const std::string& path) {
  try {
    Store store = Store::open(path);
    reports::ReportInput input;
    input.sweep = store.read_sweep();
    input.cases = store.read_cases(Store::Detail::kAll);
    require(!reports::report_text(input).empty() && !reports::cases_csv(input.sweep, input.cases).empty());
  } catch (const fsdp::Error& e) {
    require(std::string(e.what()).find('[') != std::string::npos);
  }
}

// Takes numbers off the front of the bytes; 0 when there are no more.
class Numbers {
 public:
  Numbers(const std::uint8_t* bytes, std::size_t n) : at_(bytes), end_(bytes + n) {}
  bool more() const { return at_ != end_; }
  std::uint64_t below(std::uint64_t limit) { return more() ? *at_++ % limit : 0; }
  std::int64_t any() {
    std::uint64_t v = 0;
    for (int i = 0; i < 8; ++i) v = v << 8 | below(256);
    return static_cast<std::int64_t>(v);
  }

 private:
  const std::uint8_t *at_, *end_;
};

// A whole database of version 1, which has no checksums: what is changed in it reaches the checks of rows.
const std::string& small_database() {
  static const std::string bytes = [] {
    const std::string directory = "/dev/shm/shardscope-fuzz-made-" + std::to_string(getpid());
    const auto made = testing_support::synthetic_sweep({.cases = 2, .ranks = 1, .layers = 1});
    {
      Store store = Store::open_for_writing(directory);
      store.write_sweep(made.sweep);
      for (const CaseRecord& r : made.cases) store.write_case(r);
    }
    sqlite3* db = nullptr;
    require(sqlite3_open((directory + "/results.db").c_str(), &db) == SQLITE_OK);
    sqlite3_exec(db, "DROP TABLE checksums; UPDATE schema_version SET version = 1", nullptr, nullptr, nullptr);
    sqlite3_int64 size = 0;
    unsigned char* image = sqlite3_serialize(db, "main", &size, 0);
    std::string out(reinterpret_cast<char*>(image), static_cast<std::size_t>(size));
    sqlite3_free(image);
    sqlite3_close(db);
    std::filesystem::remove_all(directory);
    return out;
  }();
  return bytes;
}

std::string value(Numbers& in) {
  switch (in.below(7)) {
    case 0:
      return "NULL";
    case 1:
      return std::to_string(in.any());
    case 2:
      return "1e300";
    case 3:
      return "-1";
    case 4:
      return "x'" + std::string(2 * in.below(9), 'f') + "'";
    case 5:
      return "'ok'";
    default:
      return std::to_string(in.below(256));
  }
}

void change(sqlite3* db, Numbers& in) {
  std::vector<std::pair<std::string, std::string>> columns;
  sqlite3_exec(
      db, "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'",
      [](void* out, int, char** text, char**) {
        static_cast<decltype(&columns)>(out)->emplace_back(text[0], text[1]);
        return 0;
      },
      &columns, nullptr);
  while (in.more()) {
    const auto& [table, column] = columns[in.below(256) % columns.size()];
    const std::string sql = "UPDATE " + table + " SET " + column + " = " + value(in) +
                            (in.below(2) == 0 ? "" : " WHERE " + column + " > 1");
    sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  }
}

}  // namespace

// Bytes that begin as a SQLite file are one; all others say what is changed in a whole one.
std::size_t results_db(const std::uint8_t* bytes, std::size_t n) {
  const std::string head(reinterpret_cast<const char*>(bytes), std::min<std::size_t>(n, 15));
  if (head == "SQLite format 3") {
    read_all(file_of(bytes, n, ".db"));
    return n;
  }
  const std::string path = file_of(small_database().data(), small_database().size(), ".db");
  sqlite3* db = nullptr;
  require(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  sqlite3_exec(db, "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF", nullptr, nullptr, nullptr);
  Numbers in(bytes, std::min<std::size_t>(n, 200));
  change(db, in);
  sqlite3_close(db);
  read_all(path);
  return std::filesystem::file_size(path);
}

namespace {
// How many bytes a stored timeline is after decompression. Nothing is kept of them.
std::size_t inflated_size(const std::string& stored) {
  std::size_t at = 1;
  while (at < stored.size() && (static_cast<unsigned char>(stored[at]) & 0x80) != 0) ++at;
  z_stream z{};
  if (++at >= stored.size() || inflateInit(&z) != Z_OK) return stored.size();
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data() + at));
  z.avail_in = static_cast<uInt>(stored.size() - at);
  std::array<Bytef, 4096> out{};
  int result = Z_OK;
  while (result == Z_OK) {
    z.next_out = out.data();
    z.avail_out = out.size();
    result = inflate(&z, Z_NO_FLUSH);
  }
  const std::size_t size = z.total_out;
  inflateEnd(&z);
  return std::max(size, stored.size());
}
}  // namespace

// An even first byte: the rest is a stored timeline; an odd one: what a stored timeline is deflated from.
std::size_t spans(const std::uint8_t* bytes, std::size_t n) {
  if (n == 0) return 0;
  std::string stored(reinterpret_cast<const char*>(bytes + 1), n - 1);
  if (bytes[0] % 2 == 1) {
    std::string packed(compressBound(stored.size()), '\0');
    uLongf size = packed.size();
    require(compress(reinterpret_cast<Bytef*>(packed.data()), &size, bytes + 1, n - 1) == Z_OK);
    std::string head("\x01", 1);
    std::uint64_t length = n - 1;
    for (; length >= 0x80; length >>= 7) head += static_cast<char>(length | 0x80);
    stored = head + static_cast<char>(length) + packed.substr(0, size);
  }
  try {
    const std::vector<fsdp::Span> read = decode_spans(stored);
    const std::vector<fsdp::Span> again = decode_spans(encode_spans(read));
    require(read.size() == again.size());
    for (std::size_t i = 0; i < read.size(); ++i)
      require(read[i].id == again[i].id && read[i].begin == again[i].begin && read[i].end == again[i].end &&
              read[i].issued == again[i].issued && read[i].waits == again[i].waits);
  } catch (const fsdp::ConfigError&) {
  }
  return inflated_size(stored);
}

std::size_t safetensors(const std::uint8_t* bytes, std::size_t n) {
  const std::string path = file_of(bytes, n, ".safetensors");
  try {
    const fsdp::SafetensorsReader reader(path);
    for (const std::string& name : reader.names()) {
      const fsdp::Count count = reader.count(name);
      require(count >= 0 && static_cast<std::uint64_t>(count) * sizeof(float) <= n);
      std::vector<float> all(static_cast<std::size_t>(count));
      reader.read(name, 0, count, all.data());
    }
  } catch (const fsdp::ConfigError&) {
  }
  return n;
}

// Bytes that begin as a zip archive are a .pt2 file; others are the texts of one, each behind a line of its own ("%%").
std::size_t exported(const std::uint8_t* bytes, std::size_t n) {
  const std::string text(reinterpret_cast<const char*>(bytes), n);
  if (text.rfind("PK", 0) == 0) {
    const std::string path = file_of(bytes, n, ".pt2");
    try {
      exported_model(path, "");
    } catch (const fsdp::Error&) {
    }
    return n * kMostInflated;
  }
  std::vector<std::string> parts(1);
  for (std::size_t at = 0; at < n;) {
    const bool next = text.compare(at, 4, "\n%%\n") == 0;
    if (next) parts.emplace_back();
    if (!next) parts.back() += text[at];
    at += next ? 4 : 1;
  }
  parts.resize(4);
  try {
    parse_exported({parts[0], parts[1], parts[2], parts[3]}, "m.pt2");
  } catch (const fsdp::Error&) {
  }
  return n;
}

}  // namespace harness::fuzz
