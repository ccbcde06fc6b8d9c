// A thin wrapper of SQLite: statements that clean up after themselves, errors as exceptions that name the file.
#pragma once
#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fsdp/core/errors.h"

namespace harness::sqlite {

class Statement;

// Another process holds the file and did not let go.
class Busy : public fsdp::ConfigError {
 public:
  using ConfigError::ConfigError;
};

// Asked again and again while another process holds the file, with how long that has been: false gives up.
using GoOnWaiting = std::function<bool(fsdp::Nanos)>;
inline bool five_seconds(fsdp::Nanos waited) { return waited < 5'000'000'000; }

// One connection. Movable; used from one thread.
class Database {
 public:
  enum class Mode { kRead, kWrite };
  // kWrite creates the file, and refuses a link in its place. Throws fsdp::ConfigError naming `path`, Busy after
  // waiting.
  Database(const std::string& path, Mode mode, GoOnWaiting wait = five_seconds);

  void run(const std::string& sql);  // one or more statements without results
  Statement prepare(const std::string& sql);
  const std::string& path() const { return path_; }
  // Throws "[path] what; what to do" for the result code of the last call: fsdp::ConfigError; Busy; when writing,
  // fsdp::EnvironmentError for a disk that is full or broken; std::bad_alloc.
  [[noreturn]] void fail(int code) const;

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  struct Waiting {
    GoOnWaiting go_on;
    fsdp::Nanos since = 0;
  };
  static int wait_a_moment(void* waiting, int times);

  std::string path_;
  Mode mode_;
  std::unique_ptr<Waiting> waiting_;  // SQLite holds its address
  std::unique_ptr<sqlite3, Close> db_;
};

class Statement {
 public:
  // Binds the next parameter, from 1. NaN is kept as the text 'nan': SQLite has no NaN.
  void bind(std::int64_t v);
  void bind(double v);
  void bind(const std::string& v);
  void bind_blob(const std::string& v);
  void bind_null();
  // True: a row is there. After false the statement is reset and can be bound again.
  bool step();
  void execute() { step(); }

  // Column of the present row, from 0.
  bool is_null(int column) const { return type(column) == SQLITE_NULL; }
  int columns() const { return sqlite3_column_count(get()); }
  const char* column_name(int column) const { return sqlite3_column_name(get(), column); }
  int type(int column) const { return sqlite3_column_type(get(), column); }
  std::int64_t integer(int column) const { return sqlite3_column_int64(get(), column); }
  double real(int column) const;
  std::string text(int column) const;
  std::string blob(int column) const;
  const std::string& path() const { return db_->path(); }

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
  };
  Statement(const Database& db, sqlite3_stmt* s) : db_(&db), s_(s) {}
  sqlite3_stmt* get() const { return s_.get(); }
  void check(int code) const;

  const Database* db_;
  std::unique_ptr<sqlite3_stmt, Finalize> s_;
  int next_ = 1;
};

// What is read while it lives is of one moment, whatever others write.
class Snapshot {
 public:
  explicit Snapshot(Database& db);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  Database& db_;
};

// Rolls back unless commit() was called.
class Transaction {
 public:
  explicit Transaction(Database& db);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& db_;
  bool open_ = true;
};

}  // namespace harness::sqlite
