#include "harness/trial/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "harness/sweep/text.h"
#include "harness/trial/rank_cores.h"
#include "harness/trial/revision.h"

namespace harness {
namespace {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    const auto colon = line.find(": ");
    if (colon != std::string::npos && (line.starts_with("model name") || line.starts_with("Model")))
      return line.substr(colon + 2);
  }
  return "unknown";
}

bool changes_measurements(std::string_view name) {
  static constexpr std::array<std::string_view, 13> kPrefixes = {
      "OMP_",   "GOMP_",    "KMP_",  "MKL_",  "DNNL_",       "ONEDNN_", "ATEN_",
      "TORCH_", "PYTORCH_", "GLOO_", "NCCL_", "SHARDSCOPE_", "MALLOC_"};
  static constexpr std::array<std::string_view, 7> kNames = {"LD_PRELOAD",           "GLIBC_TUNABLES",
                                                             "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
                                                             "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS",
                                                             "CUDA_MODULE_LOADING"};
  for (const char* secret : {"SECRET", "TOKEN", "PASSWORD", "_KEY"})
    if (name.find(secret) != std::string_view::npos) return false;  // not to be recorded
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view p) { return name.starts_with(p); });
}
}  // namespace

std::string shardscope_version() { return SHARDSCOPE_VERSION; }
std::string git_revision() { return SHARDSCOPE_GIT_REVISION; }

int usable_cores() {
  const std::vector<int> allowed = allowed_cores();
  return static_cast<int>(allowed.empty() ? sysconf(_SC_NPROCESSORS_ONLN) : static_cast<long>(allowed.size()));
}

std::map<std::string, std::string> host_environment() {
  std::map<std::string, std::string> e;
  utsname u{};
  if (uname(&u) == 0) {
    e["kernel"] = std::string(u.sysname) + " " + u.release + " " + u.machine;
    e["host"] = u.nodename;
  }
  e["cpu"] = cpu_model();
  e["cores"] = std::to_string(usable_cores());
  e["memory_bytes"] = std::to_string(sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE));
  e["shardscope"] = shardscope_version();
  e["git_revision"] = git_revision();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view pair(*entry);
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos || !changes_measurements(pair.substr(0, equals))) continue;
    e["env." + std::string(pair.substr(0, equals))] = std::string(pair.substr(equals + 1));
  }
  return e;
}

std::string command_of(const CaseSettings& settings) {
  std::string command = "shardscope run";
  for (const SettingRow& row : setting_table()) {
    const std::string text = row.print(settings);
    if (text == row.standard) continue;
    std::string flag = row.name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    command += " --" + flag + " " + shell_quoted(text);
  }
  return command;
}

}  // namespace harness
