// The Python of `shardscope export` (harness/workload/python), embedded by CMake.
#pragma once
#include <string_view>
#include <vector>

namespace harness::cli {

struct ExportScript {
  const char* name;
  std::string_view text;
};
const std::vector<ExportScript>& export_scripts();

}  // namespace harness::cli
