// The schema of results.db. Version 2 is version 1 and table checksums.
#pragma once
#include <string>

#include "harness/store/sqlite.h"

namespace harness::store_detail {

inline constexpr int kSchemaVersion = 2;
// What the records mean, for `compare`: checksums change nothing in it.
inline constexpr int kRecordVersion = 1;

// Creates what a new file lacks; a file of version 1 gets the checksums of what it holds. Throws fsdp::ConfigError if
// the file has a newer version or is another program's.
void create_schema(sqlite::Database& db);
bool has_table(sqlite::Database& db, const char* name);
// Throws fsdp::ConfigError: not ours, newer, damaged.
void check_schema(sqlite::Database& db);

}  // namespace harness::store_detail
