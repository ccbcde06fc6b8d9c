// The files of a result directory that are made from results.db.
#pragma once
#include <string>
#include <vector>

#include "reports/shape.h"

namespace harness::cli {

// Throws fsdp::ConfigError naming the directory.
reports::ReportInput read_results(const std::string& directory);

}  // namespace harness::cli
