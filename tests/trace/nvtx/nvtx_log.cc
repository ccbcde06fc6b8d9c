#include "tests/trace/nvtx/nvtx_log.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace harness {

std::vector<std::vector<NvtxEvent>> read_nvtx_logs(const std::string& prefix) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(prefix).parent_path()))
    if (entry.path().string().rfind(prefix + ".", 0) == 0) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::vector<NvtxEvent>> out;
  for (const fs::path& path : paths) {
    std::ifstream in(path);
    std::vector<NvtxEvent> events;
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      NvtxEvent e;
      words >> e.thread >> e.what >> e.domain >> e.category >> e.payload;
      std::getline(words >> std::ws, e.name);
      events.push_back(e);
    }
    out.push_back(std::move(events));
  }
  return out;
}

std::string unbalanced(const std::vector<NvtxEvent>& events) {
  std::map<int, std::vector<std::string>> open;
  for (const NvtxEvent& e : events) {
    std::vector<std::string>& stack = open[e.thread];
    if (e.what == "push") stack.push_back(e.name);
    if (e.what != "pop") continue;
    if (stack.empty()) return "a pop without a push on thread " + std::to_string(e.thread);
    stack.pop_back();
  }
  for (const auto& [thread, stack] : open)
    if (!stack.empty()) return stack.back() + " is still open on thread " + std::to_string(thread);
  return "";
}

}  // namespace harness
