// A thin wrapper of SQLite: statements that clean up after themselves, errors as exceptions that name the file.
#pragma once
#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace harness::sqlite {

class Statement;

// One connection. Movable; used from one thread.
class Database {
 public:
  enum class Mode { kRead, kWrite };
  // kWrite creates the file. Throws fsdp::ConfigError naming `path`.
  Database(const std::string& path, Mode mode);

  void run(const std::string& sql);  // one or more statements without results
  Statement prepare(const std::string& sql);
  const std::string& path() const { return path_; }
  // Throws fsdp::ConfigError "[path] what; what to do" for the result code of the last call.
  [[noreturn]] void fail(int code) const;

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  std::string path_;
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
  bool is_null(int column) const { return sqlite3_column_type(get(), column) == SQLITE_NULL; }
  std::int64_t integer(int column) const { return sqlite3_column_int64(get(), column); }
  double real(int column) const;
  std::string text(int column) const;
  std::string blob(int column) const;

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
