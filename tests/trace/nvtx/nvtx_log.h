// Reads what tests/trace/nvtx/nvtx_tool.cc wrote.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace harness {

struct NvtxEvent {
  int thread = 0;
  std::string what, domain;  // push, pop, start, end, mark
  unsigned category = 0;
  std::uint64_t payload = 0;
  std::string name;
};
// Of all processes whose log starts with `prefix`, one list a process.
std::vector<std::vector<NvtxEvent>> read_nvtx_logs(const std::string& prefix);

// Empty when on every thread each pop ends a push, and none is open at the end; else what is wrong.
std::string unbalanced(const std::vector<NvtxEvent>& events);

}  // namespace harness
