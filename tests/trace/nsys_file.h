// Nsight Systems exports made by hand: the tables that the reader knows, with the columns of schema 3.24 to 3.30.
#pragma once
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <string>

#include "tests/trace/kineto_text.h"

namespace harness::testing {

class NsysFile {
 public:
  explicit NsysFile(const std::string& name) : path_(temporary(name)) {
    std::remove(path_.c_str());
    EXPECT_EQ(sqlite3_open(path_.c_str(), &db_), SQLITE_OK);
    sql("CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT)");
    sql("INSERT INTO META_DATA_EXPORT VALUES('EXPORT_SCHEMA_VERSION','3.30.1')");
    sql("CREATE TABLE StringIds(id INTEGER, value TEXT)");
    const std::string times =
        "(start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
        "globalPid INTEGER";
    sql("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL" + times + ", demangledName INTEGER, shortName INTEGER, later TEXT)");
    sql("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY" + times + ", bytes INTEGER, copyKind INTEGER)");
    sql("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
        "correlationId INTEGER, nameId INTEGER, returnValue INTEGER)");
    sql("CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId "
        "INTEGER, domainId INTEGER)");
  }
  ~NsysFile() { sqlite3_close(db_); }

  NsysFile& sql(const std::string& text) {
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db_, text.c_str(), nullptr, nullptr, &error), SQLITE_OK)
        << (error != nullptr ? error : "") << " in " << text;
    sqlite3_free(error);
    return *this;
  }
  NsysFile& kernel(int device, std::int64_t pid, int stream, const std::string& name, std::int64_t begin,
                   std::int64_t end, int correlation) {
    return row("CUPTI_ACTIVITY_KIND_KERNEL",
               {begin, end, device, 1, stream, correlation, pid, string(name), string(name)}, ",NULL");
  }
  NsysFile& memcpy(int device, std::int64_t pid, int stream, std::int64_t begin, std::int64_t end, int correlation,
                   std::int64_t bytes = 64) {
    return row("CUPTI_ACTIVITY_KIND_MEMCPY", {begin, end, device, 1, stream, correlation, pid, bytes, 8});
  }
  NsysFile& launch(std::int64_t pid, const std::string& name, std::int64_t begin, std::int64_t end, int correlation) {
    return row("CUPTI_ACTIVITY_KIND_RUNTIME", {begin, end, 0, pid | 7, correlation, string(name), 0});
  }
  // A push/pop range on the launching thread; registered strings go by id.
  NsysFile& range(std::int64_t pid, const std::string& text, std::int64_t begin, std::int64_t end,
                  bool registered = false) {
    const std::string inline_text = registered ? "NULL" : "'" + text + "'",
                      id = registered ? std::to_string(string(text)) : "NULL";
    return sql("INSERT INTO NVTX_EVENTS VALUES(" + std::to_string(begin) + "," + std::to_string(end) + ",59," +
               inline_text + "," + std::to_string(pid | 7) + "," + id + ",0)");
  }
  std::string close() {
    sqlite3_close(db_);
    db_ = nullptr;
    return path_;
  }

 private:
  std::int64_t string(const std::string& text) {
    const auto [it, fresh] = strings_.emplace(text, strings_.size() + 1);
    if (fresh) sql("INSERT INTO StringIds VALUES(" + std::to_string(it->second) + ",'" + text + "')");
    return it->second;
  }
  NsysFile& row(const std::string& table, const std::vector<std::int64_t>& values, const std::string& rest = "") {
    std::string list;
    for (const std::int64_t v : values) list.append(list.empty() ? "" : ",").append(std::to_string(v));
    return sql("INSERT INTO " + table + " VALUES(" + list + rest + ")");
  }

  std::string path_;
  sqlite3* db_ = nullptr;
  std::map<std::string, std::int64_t> strings_;
};

}  // namespace harness::testing
