// The files of a result directory that are made from results.db.
#pragma once
#include <string>
#include <vector>

#include "reports/shape.h"

namespace harness::cli {

// Throws fsdp::ConfigError naming the directory.
reports::ReportInput read_results(const std::string& directory);
// Writes `text` beside `path` and moves it there, so that a reader never sees half a file. Throws fsdp::ConfigError.
void write_file(const std::string& path, const std::string& text);

}  // namespace harness::cli
