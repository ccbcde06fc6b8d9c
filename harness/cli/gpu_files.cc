#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/cli/machine.h"
#include "harness/sweep/text.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
constexpr int kSysAdmin = 21;  // CAP_SYS_ADMIN

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// What follows "NAME:" on a line of its own.
std::optional<std::string> field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(name + ":", 0) == 0) return trim(line.substr(name.size() + 1));
  return std::nullopt;
}

}  // namespace

void probe_gpu_files(const std::string& root, GpuNodeFacts& out) {
  if (const auto only = field(text_of(root + "/proc/driver/nvidia/params"), "RmProfilingAdminOnly"))
    out.counters_admin_only = *only != "0";
  const auto capabilities = field(text_of(root + "/proc/self/status"), "CapEff");
  out.admin = capabilities && (std::strtoull(capabilities->c_str(), nullptr, 16) >> kSysAdmin & 1) != 0;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(root + "/sys/class/infiniband", error))
    out.infiniband.push_back(device.path().filename());
  std::sort(out.infiniband.begin(), out.infiniband.end());
  out.gpu_direct = fs::exists(root + "/sys/module/nvidia_peermem", error);
}

}  // namespace harness::cli
