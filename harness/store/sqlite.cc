#include "harness/store/sqlite.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <new>
#include <utility>

#include "fsdp/core/clock.h"

namespace harness::sqlite {
namespace {

// The folder may be reached by links, the file itself not.
std::string without_links(const std::string& path) {
  std::error_code error;
  const std::filesystem::path given(path);
  const auto folder = std::filesystem::canonical(given.has_parent_path() ? given.parent_path() : ".", error);
  return error ? path : (folder / given.filename()).string();
}

}  // namespace

// What SQLite recommends for files that strangers may have written ("Defense against the dark arts").
Database::Database(const std::string& path, Mode mode, GoOnWaiting wait)
    : path_(path), mode_(mode), waiting_(std::make_unique<Waiting>(Waiting{std::move(wait)})) {
  sqlite3* db = nullptr;
  const bool write = mode == Mode::kWrite;
  const int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW : SQLITE_OPEN_READONLY;
  const int code =
      sqlite3_open_v2((write ? without_links(path) : path).c_str(), &db, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  db_.reset(db);
  if (code == SQLITE_NOMEM) throw std::bad_alloc();
  if (code != SQLITE_OK) fail(code);
  sqlite3_busy_handler(db, wait_a_moment, waiting_.get());
  sqlite3_extended_result_codes(db, 0);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  run("PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0");
}

int Database::wait_a_moment(void* waiting, int times) {
  constexpr fsdp::Nanos kMoment = 20'000'000;
  auto* w = static_cast<Waiting*>(waiting);
  const fsdp::Nanos now = fsdp::steady_now();
  if (times == 0) w->since = now;
  if (!w->go_on(now - w->since)) return 0;
  fsdp::sleep_until(now + kMoment);
  return 1;
}

void Database::fail(int code) const {
  if ((code & 0xff) == SQLITE_NOMEM) throw std::bad_alloc();
  const char* remedy = "see that the file can be read and written";
  switch (code & 0xff) {
    case SQLITE_NOTADB:
      remedy = "it is not a results database; give the directory that a sweep wrote";
      break;
    case SQLITE_ERROR:  // a table or a column is not there
    case SQLITE_CORRUPT:
      remedy = "the file is damaged; restore a copy, or move it away and run the sweep again";
      break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      remedy = "another process holds it; wait for it to end";
      break;
    case SQLITE_FULL:
      remedy = "make room on the disk";
      break;
    case SQLITE_IOERR:
      remedy = "see that the disk is well and has room";
      break;
    case SQLITE_READONLY:
      remedy = "it cannot be written; give a directory that can";
      break;
    default:
      break;
  }
  const std::string text =
      fmt::format("[{}] {}; {}", path_, db_ ? sqlite3_errmsg(db_.get()) : sqlite3_errstr(code), remedy);
  const int kind = code & 0xff;
  if (kind == SQLITE_BUSY || kind == SQLITE_LOCKED) throw Busy(text);
  if (mode_ == Mode::kWrite && (kind == SQLITE_FULL || kind == SQLITE_IOERR)) throw fsdp::EnvironmentError(text);
  throw fsdp::ConfigError(text);
}

void Database::run(const std::string& sql) {
  const int code = sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

Statement Database::prepare(const std::string& sql) {
  sqlite3_stmt* s = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql.c_str(), static_cast<int>(sql.size()), &s, nullptr);
  if (code != SQLITE_OK) fail(code);
  return {*this, s};
}

void Statement::check(int code) const {
  if (code != SQLITE_OK) db_->fail(code);
}

void Statement::bind(std::int64_t v) { check(sqlite3_bind_int64(get(), next_++, v)); }

void Statement::bind(double v) {
  if (std::isnan(v)) return bind(std::string("nan"));
  check(sqlite3_bind_double(get(), next_++, v));
}

void Statement::bind(const std::string& v) {
  check(sqlite3_bind_text(get(), next_++, v.data(), static_cast<int>(v.size()), SQLITE_TRANSIENT));
}

void Statement::bind_blob(const std::string& v) {
  check(sqlite3_bind_blob(get(), next_++, v.data(), static_cast<int>(v.size()), SQLITE_TRANSIENT));
}

void Statement::bind_null() { check(sqlite3_bind_null(get(), next_++)); }

bool Statement::step() {
  const int code = sqlite3_step(get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) {
    sqlite3_reset(get());
    db_->fail(code);
  }
  sqlite3_reset(get());
  next_ = 1;
  return false;
}

double Statement::real(int column) const {
  if (sqlite3_column_type(get(), column) == SQLITE_TEXT) return std::numeric_limits<double>::quiet_NaN();
  return sqlite3_column_double(get(), column);
}

std::string Statement::text(int column) const {
  const auto* begin = reinterpret_cast<const char*>(sqlite3_column_text(get(), column));
  return begin ? std::string(begin, static_cast<std::size_t>(sqlite3_column_bytes(get(), column))) : std::string();
}

std::string Statement::blob(int column) const {
  const auto* begin = static_cast<const char*>(sqlite3_column_blob(get(), column));
  return begin ? std::string(begin, static_cast<std::size_t>(sqlite3_column_bytes(get(), column))) : std::string();
}

Snapshot::Snapshot(Database& db) : db_(db) { db_.run("BEGIN"); }

Snapshot::~Snapshot() {
  try {
    db_.run("COMMIT");
  } catch (const std::exception&) {  // nothing was written
  }
}

Transaction::Transaction(Database& db) : db_(db) { db_.run("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  if (!open_) return;
  try {
    db_.run("ROLLBACK");
  } catch (const std::exception&) {  // SQLite has rolled back by itself
  }
}

void Transaction::commit() {
  db_.run("COMMIT");
  open_ = false;
}

}  // namespace harness::sqlite
