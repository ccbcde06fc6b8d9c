// Reads Nsight Systems exports (`nsys export --type sqlite`), schema 3. The file is opened read-only and never changed.
// Tables and columns are looked up by name; what is absent is named in a note or, where nothing can be said without it,
// in the error.
#pragma once
#include <string>

#include "harness/trace/foreign_trace.h"

namespace harness {

bool is_sqlite_file(const std::string& path);

// Throws fsdp::ConfigError if the file cannot be opened, is no export, has another major schema, or lacks what tells
// its processes apart.
ForeignTrace read_nsys_trace(const std::string& path);

}  // namespace harness
