// The schema of results.db. Version 1.
#pragma once
#include <string>

#include "harness/store/sqlite.h"

namespace harness::store_detail {

inline constexpr int kSchemaVersion = 1;

// Creates what a new file lacks. Throws fsdp::ConfigError if the file has a newer version or is another program's.
void create_schema(sqlite::Database& db);
// Throws fsdp::ConfigError: not ours, newer, damaged.
void check_schema(sqlite::Database& db);

}  // namespace harness::store_detail
