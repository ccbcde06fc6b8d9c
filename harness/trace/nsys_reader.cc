#include "harness/trace/nsys_reader.h"

#include <sqlite3.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

using fsdp::Nanos;

constexpr std::int64_t kThreadBits = 0xFFFFFF;
constexpr int kPushPop = 59, kStartEnd = 60;  // NVTX event types
constexpr std::string_view kPrefix = "CUPTI_ACTIVITY_KIND_";
constexpr int kLongestValue = 4 << 20;  // bytes

struct Closer {
  void operator()(sqlite3* d) const { sqlite3_close(d); }
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};

std::string uri_of(const std::string& path) {
  std::string out = "file:";
  for (const char c : path) {
    if (c == '?' || c == '#' || c == '%') {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "?mode=ro&immutable=1";
}

class Database {
 public:
  explicit Database(const std::string& path) : path_(path) {
    sqlite3* raw = nullptr;
    const int rc = sqlite3_open_v2(uri_of(path).c_str(), &raw, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
    db_.reset(raw);
    if (rc != SQLITE_OK) fail();
    // The file is a stranger's: only plain tables are read, so that no view or virtual table runs for longer than its
    // rows, and no value is longer than any name.
    sqlite3_limit(raw, SQLITE_LIMIT_LENGTH, kLongestValue);
    sqlite3_db_config(raw, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    each("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'",
         [&](sqlite3_stmt* s) { tables_.insert(text(s, 0)); });
  }
  const std::set<std::string>& tables() const { return tables_; }
  std::int64_t rows(const std::string& table) {
    if (!has(table)) return 0;
    std::int64_t n = 0;
    each("SELECT count(*) FROM " + quoted(table), [&](sqlite3_stmt* s) { n = integer(s, 0); });
    return n;
  }
  static std::string quoted(const std::string& name) {
    std::string out = "\"";
    for (const char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
  }

  [[noreturn]] void fail() const {
    throw fsdp::ConfigError("[" + path_ + "] " + sqlite3_errmsg(db_.get()) +
                            "; give an Nsight Systems export: nsys export --type sqlite");
  }

  bool has(const std::string& table) const { return tables_.contains(table); }
  const std::set<std::string>& columns(const std::string& table) {
    std::set<std::string>& c = columns_[table];
    if (c.empty()) each("PRAGMA table_info(" + quoted(table) + ")", [&](sqlite3_stmt* s) { c.insert(text(s, 1)); });
    return c;
  }
  bool has(const std::string& table, const std::string& column) {
    return has(table) && columns(table).contains(column);
  }
  // The column, or NULL where the table lacks it.
  std::string column(const std::string& table, const std::string& name) {
    return has(table, name) ? "\"" + name + "\"" : "NULL";
  }

  // Calls f for each row; false if the file is damaged on the way: rows before that have been given.
  bool each(const std::string& sql, const std::function<void(sqlite3_stmt*)>& f) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) fail();
    const std::unique_ptr<sqlite3_stmt, Closer> statement(raw);
    int rc;
    while ((rc = sqlite3_step(raw)) == SQLITE_ROW) f(raw);
    if (rc != SQLITE_DONE) damage_ = sqlite3_errmsg(db_.get());
    return rc == SQLITE_DONE;
  }
  const std::string& damage() const { return damage_; }

  static std::string text(sqlite3_stmt* s, int i) {
    const auto* t = sqlite3_column_text(s, i);
    return t == nullptr
               ? std::string()
               : std::string(reinterpret_cast<const char*>(t), static_cast<std::size_t>(sqlite3_column_bytes(s, i)));
  }
  static bool null(sqlite3_stmt* s, int i) { return sqlite3_column_type(s, i) == SQLITE_NULL; }
  static std::int64_t integer(sqlite3_stmt* s, int i) { return sqlite3_column_int64(s, i); }
  static double real(sqlite3_stmt* s, int i) { return sqlite3_column_double(s, i); }

 private:
  std::string path_, damage_;
  std::unique_ptr<sqlite3, Closer> db_;
  std::set<std::string> tables_;
  std::unordered_map<std::string, std::set<std::string>> columns_;
};

class Reader {
 public:
  Reader(Database& db, ForeignTrace& out) : db_(db), out_(out), facts_(out.facts) {}

  void read() {
    for (const char* kind : {"KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE"}) {
      find_table(std::string(kPrefix) + kind);
    }
    for (const char* name : {"NVTX_EVENTS", "StringIds"}) find_table(name);
    check_schema();
    find_processes();
    read_strings();
    for (const char* kind : {"KERNEL", "MEMCPY", "MEMSET"}) read_operations(kind);
    read_launches();
    read_ranges();
    if (db_.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")) {
      db_.each("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1", [&](sqlite3_stmt* s) {
        facts_.base_time = std::max(Nanos{0}, time_of(s, 0));
        facts_.has_base_time = true;
      });
    }
    note_graphs();
    name_tables_left();
    count_ranges();
    if (!db_.damage().empty()) {
      facts_.partial = true;
      facts_.notes.push_back("the database is damaged (" + db_.damage() + "): what could be read is reported");
    }
  }

 private:
  // The table that holds what `name` is documented to hold.
  const std::string& real(const std::string& name) const {
    const auto it = real_.find(name);
    return it == real_.end() ? name : it->second;
  }
  std::string table(const char* kind) const { return real(std::string(kPrefix) + kind); }

  // Exports of later versions give tables a suffix: "_V2", "_V3". The one with rows is read, the newest of several.
  void find_table(const std::string& name) {
    std::string best = name;
    int newest = db_.rows(name) > 0 ? 0 : -1;
    for (const std::string& t : db_.tables()) {
      const int version = version_of(t, name);
      if (version <= newest || newest == 0 || db_.rows(t) == 0) continue;
      newest = version;
      best = t;
    }
    known_.insert(best);
    if (best == name) return;
    real_[name] = best;
    facts_.notes.push_back("table " + best + " is read as " + name);
  }

  // 2 of "NVTX_EVENTS_V2" and "NVTX_EVENTS2" for "NVTX_EVENTS"; -1: not a version of it.
  static int version_of(const std::string& table, const std::string& name) {
    if (!table.starts_with(name) || table.size() == name.size()) return -1;
    std::size_t i = name.size();
    if (table[i] == '_') ++i;
    if (i < table.size() && (table[i] == 'V' || table[i] == 'v')) ++i;
    const bool number = i < table.size() && table.size() - i < 6 &&
                        std::all_of(table.begin() + static_cast<long>(i), table.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
    return number ? std::stoi(table.substr(i)) : -1;
  }

  // Tables with work of devices that are not read, and others of the kinds that are.
  void name_tables_left() {
    static const std::set<std::string> kNoWork = {"SYNCHRONIZATION", "OVERHEAD", "CUDA_EVENT",
                                                  "GRAPH_TRACE",     "MEMORY",   "MEMORY_POOL"};
    for (const std::string& t : db_.tables()) {
      if (known_.contains(t) || t.starts_with("ENUM_")) continue;
      const bool of_cupti = t.starts_with(kPrefix);
      const std::string kind = of_cupti ? t.substr(kPrefix.size()) : t;
      if (kNoWork.contains(kind.substr(0, kind.find("_V")))) continue;
      const bool timed = db_.has(t, "start") && db_.has(t, "end");
      const bool of_device = db_.has(t, "deviceId") || db_.has(t, "streamId") || db_.has(t, "gpuId");
      const bool like_ours = t.starts_with("NVTX_EVENTS") && timed;
      if (!like_ours && !(timed && of_device) && !(of_cupti && db_.has(t, "start"))) continue;
      std::int64_t rows = 0;
      double ns = 0;
      const std::string length = timed ? "total(max(\"end\" - start, 0))" : "0";
      db_.each("SELECT count(*), " + length + " FROM " + Database::quoted(t), [&](sqlite3_stmt* s) {
        rows = Database::integer(s, 0);
        ns = Database::real(s, 1);
      });
      if (rows == 0) continue;
      const bool device = of_device && !t.starts_with("NVTX_EVENTS");
      out_.add_unknown(t, device, ns < 4e18 ? static_cast<Nanos>(std::max(0.0, ns)) : kLatestTime, rows);
    }
  }

  // Who marked ranges without calling CUDA is a process too.
  void count_ranges() {
    if (!by_process_ || !db_.has("TARGET_INFO_CUDA_DEVICE", "pid")) return;
    db_.each("SELECT DISTINCT pid FROM TARGET_INFO_CUDA_DEVICE",
             [&](sqlite3_stmt* s) { facts_.device_pids.insert(Database::integer(s, 0)); });
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw fsdp::ConfigError("[" + facts_.path + "] " + what + "; export the report again with nsys 2024 or later");
  }

  void check_schema() {
    bool any = db_.has(table("KERNEL")) || db_.has(table("MEMCPY")) || db_.has(table("MEMSET")) ||
               db_.has(table("RUNTIME")) || db_.has(real("NVTX_EVENTS"));
    std::string version;
    if (db_.has("META_DATA_EXPORT", "value")) {
      any = true;
      db_.each("SELECT value FROM META_DATA_EXPORT WHERE name='EXPORT_SCHEMA_VERSION'",
               [&](sqlite3_stmt* s) { version = Database::text(s, 0); });
    }
    if (!any) refuse("is a database, but no Nsight Systems export: it has no table " + table("KERNEL"));
    if (!version.empty() && version.substr(0, version.find('.')) != "3") {
      refuse("has schema " + version + ", and only schema 3 is known");
    }
  }

  // Correlation ids are per process: without globalPid a file of several processes cannot be told apart.
  void find_processes() {
    by_process_ = false;
    for (const char* kind : {"KERNEL", "MEMCPY", "MEMSET"}) by_process_ |= db_.has(table(kind), "globalPid");
    if (by_process_ || !db_.has(table("RUNTIME"), "globalTid")) return;
    std::set<std::int64_t> processes;
    // Reduced exports may hold plain thread ids: those are below the process bits.
    db_.each("SELECT DISTINCT globalTid FROM " + table("RUNTIME"),
             [&](sqlite3_stmt* s) { processes.insert(Database::integer(s, 0) & ~kThreadBits); });
    by_process_ = !has_operations();  // launch calls alone say whose they are
    if (by_process_) return;
    if (processes.size() > 1) {
      refuse("holds " + std::to_string(processes.size()) + " processes, but " + table("KERNEL") +
             " has no column globalPid to tell them apart");
    }
  }

  bool has_operations() const {
    return db_.has(table("KERNEL")) || db_.has(table("MEMCPY")) || db_.has(table("MEMSET"));
  }

  std::int64_t process_of(sqlite3_stmt* s, int i) const {
    return by_process_ && !Database::null(s, i) ? Database::integer(s, i) & ~kThreadBits : 0;
  }

  void read_strings() {
    const std::string t = real("StringIds");
    if (!db_.has(t, "value")) {
      if (db_.has(table("KERNEL"))) facts_.notes.push_back("table StringIds is missing: kernels have no names");
      return;
    }
    db_.each("SELECT id, value FROM " + t,
             [&](sqlite3_stmt* s) { strings_.emplace(Database::integer(s, 0), Database::text(s, 1)); });
  }

  const std::string& string(std::int64_t id) const {
    static const std::string kNone;
    const auto it = strings_.find(id);
    return it == strings_.end() ? kNone : it->second;
  }

  void read_operations(const char* kind) {
    const std::string t = table(kind);
    const bool kernel = std::strcmp(kind, "KERNEL") == 0, memset = std::strcmp(kind, "MEMSET") == 0;
    if (!db_.has(t)) {
      if (kernel) facts_.notes.push_back("no table of kernels: " + t + " is missing");
      return;
    }
    for (const char* needed : {"start", "end", "deviceId", "streamId"}) {
      if (!db_.has(t, needed)) refuse("table " + t + " has no column " + needed);
    }
    if (!db_.has(t, "correlationId")) {
      facts_.partial = true;
      facts_.notes.push_back("table " + t + " has no column correlationId: its operations have no launch calls");
    }
    const std::string shape = [&] {
      std::string list = "NULL";
      for (const char* c : {"gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"}) {
        if (kernel && db_.has(t, c)) list = (list == "NULL" ? "" : list + "||','||") + ("\"" + std::string(c) + "\"");
      }
      return list;
    }();
    const std::string names = kernel ? db_.column(t, "shortName") + "," + db_.column(t, "demangledName") : "NULL,NULL";
    db_.each("SELECT start,\"end\",deviceId,streamId," + db_.column(t, "correlationId") + "," +
                 db_.column(t, "globalPid") + "," + db_.column(t, "bytes") + "," + names + "," + shape + "," +
                 db_.column(t, "copyKind") + "," + db_.column(t, "srcDeviceId") + "," + db_.column(t, "dstDeviceId") +
                 " FROM " + t,
             [&](sqlite3_stmt* s) {
               DeviceOp op;
               op.kind = kernel ? OpKind::kKernel : (memset ? OpKind::kMemset : OpKind::kMemcpy);
               if (!take_times(s, op)) return;
               op.stream = static_cast<std::int32_t>(Database::integer(s, 3));
               op.correlation = static_cast<std::uint64_t>(Database::integer(s, 4));
               op.bytes = Database::integer(s, 6);
               op.name = kernel ? kernel_name(Database::integer(s, 7), Database::integer(s, 8))
                                : out_.name(memset ? "Memset" : copy_name(s));
               op.shape = static_cast<std::uint32_t>(std::hash<std::string>()(Database::text(s, 9)));
               op.row = out_.row(process_of(s, 5), static_cast<std::int32_t>(Database::integer(s, 2)));
               out_.add_op(op);
               ++facts_.events;
             });
  }

  // The short name, unless only the long one tells that the kernel communicates: "dispatch" of deep_ep::intranode.
  std::uint32_t kernel_name(std::int64_t shorter, std::int64_t longer) {
    const auto [it, fresh] = kernel_names_.try_emplace({shorter, longer}, 0);
    if (!fresh) return it->second;
    const std::string &a = string(shorter), &b = string(longer);
    const bool takes_long = a.empty() || communication_name(b) > communication_name(a);
    return it->second = out_.name(takes_long ? b : a);
  }

  static const char* copy_name(sqlite3_stmt* s) {
    constexpr std::int64_t kPeers = 10;
    const bool devices = !Database::null(s, 11) && !Database::null(s, 12);
    const bool apart = devices && Database::integer(s, 11) != Database::integer(s, 12) &&
                       Database::integer(s, 11) >= 0 && Database::integer(s, 12) >= 0;
    const std::int64_t kind = Database::integer(s, 10);
    return kind == kPeers || (kind == 8 && apart) ? "Memcpy PtoP" : "Memcpy";
  }

  static Nanos time_of(sqlite3_stmt* s, int i) {
    return std::clamp(Database::integer(s, i), -kLatestTime, kLatestTime);
  }

  bool take_times(sqlite3_stmt* s, DeviceOp& op) {
    BadRecords& bad = facts_.bad;
    if (Database::null(s, 0) || Database::null(s, 1)) {
      ++bad.no_duration;
      return false;
    }
    op.begin = Database::integer(s, 0);
    op.end = Database::integer(s, 1);
    if (op.begin < -kLatestTime || op.begin > kLatestTime || op.end < -kLatestTime || op.end > kLatestTime) {
      ++bad.not_a_number;
      return false;
    }
    bad.zero_times += op.begin == 0 && op.end == 0;
    bad.negative_duration += op.end < op.begin;
    bad.impossible_duration += op.end - op.begin > kLongestOperation;
    return op.end >= op.begin && !(op.begin == 0 && op.end == 0) && op.end - op.begin <= kLongestOperation;
  }

  void read_launches() {
    const std::string t = table("RUNTIME");
    if (!db_.has(t)) {
      facts_.notes.push_back("table " + t + " is missing: no launch calls, so gaps have no known cause");
      return;
    }
    for (const char* needed : {"start", "end", "correlationId"}) {
      if (!db_.has(t, needed)) refuse("table " + t + " has no column " + needed);
    }
    db_.each("SELECT start,\"end\",correlationId," + db_.column(t, "globalTid") + "," + db_.column(t, "nameId") +
                 " FROM " + t,
             [&](sqlite3_stmt* s) {
               if (Database::null(s, 0) || Database::null(s, 1)) return;
               const Nanos begin = time_of(s, 0), end = time_of(s, 1);
               const std::int64_t tid = Database::integer(s, 3);
               const std::uint32_t thread = out_.thread(0, tid);
               if (end < begin) return;
               out_.add_call(string(Database::integer(s, 4)), process_of(s, 3),
                             static_cast<std::uint64_t>(Database::integer(s, 2)), thread, begin, end);
               ++facts_.events;
             });
  }

  void read_ranges() {
    const std::string t = real("NVTX_EVENTS");
    if (!db_.has(t)) return;
    for (const char* needed : {"start", "end", "eventType"}) {
      if (!db_.has(t, needed)) {
        facts_.notes.push_back("table " + t + " has no column " + needed + ": its ranges are not read");
        return;
      }
    }
    db_.each("SELECT start,\"end\",eventType," + db_.column(t, "globalTid") + "," + db_.column(t, "text") + "," +
                 db_.column(t, "textId") + " FROM " + t + " WHERE eventType IN (" + std::to_string(kPushPop) + "," +
                 std::to_string(kStartEnd) + ")",
             [&](sqlite3_stmt* s) {
               if (Database::null(s, 0)) return;
               std::string text = Database::text(s, 4);
               if (text.empty()) text = string(Database::integer(s, 5));
               ++facts_.events;
               // What PyTorch's NVTX emitter adds to names.
               for (const char* suffix : {", op_id = ", ", seq = "}) text = text.substr(0, text.find(suffix));
               const bool library =
                   text.size() > 4 && text.starts_with("nccl") && std::isupper(static_cast<unsigned char>(text[4]));
               const int type = static_cast<int>(Database::integer(s, 2));
               if (type == kStartEnd && meaning_of(text).kind != AnnotationKind::kStep) return;
               const std::int64_t tid = Database::integer(s, 3);
               out_.add_annotation(text, process_of(s, 3), out_.thread(0, tid), time_of(s, 0),
                                   Database::null(s, 1) ? kNoTime : time_of(s, 1), library);
             });
  }

  void note_graphs() {
    const std::string t = table("GRAPH_TRACE");
    if (!db_.has(t)) return;
    std::int64_t rows = 0;
    db_.each("SELECT count(*) FROM " + t, [&](sqlite3_stmt* s) { rows = Database::integer(s, 0); });
    if (rows == 0) return;
    facts_.partial = true;
    facts_.notes.push_back(
        std::to_string(rows) +
        " CUDA graphs were traced as wholes: the kernels inside them are not in the file; capture with "
        "--cuda-graph-trace=node");
  }

  Database& db_;
  ForeignTrace& out_;
  TraceFacts& facts_;
  bool by_process_ = true;
  std::map<std::string, std::string> real_;  // tables under other names than documented
  std::set<std::string> known_;              // tables that are read
  std::unordered_map<std::int64_t, std::string> strings_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> kernel_names_;
};

}  // namespace

bool is_sqlite_file(const std::string& path) {
  char magic[16] = {};
  std::FILE* f = std::fopen(path.c_str(), "rb");
  if (f == nullptr) return false;
  const std::size_t n = std::fread(magic, 1, sizeof magic, f);
  std::fclose(f);
  return n >= 15 && std::memcmp(magic, "SQLite format 3", 15) == 0;
}

ForeignTrace read_nsys_trace(const std::string& path) {
  ForeignTrace out;
  out.facts.path = path;
  out.facts.source = TraceSource::kNsys;
  Database db(path);
  Reader(db, out).read();
  out.finish();
  return out;
}

}  // namespace harness
