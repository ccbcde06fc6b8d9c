#include "harness/trial/gpu/libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <vector>

namespace harness {
namespace {

namespace fs = std::filesystem;

// The folder that holds torch/ and nvidia/; empty when LibTorch is not in the process.
fs::path site_packages() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const std::string path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        if (path.find("libtorch_cpu.so") == std::string::npos) return 0;
        *static_cast<std::string*>(out) = path;
        return 1;
      },
      &found);
  return fs::path(found).parent_path().parent_path().parent_path();
}

// The library that is in the process, else one of the wheel, else the loader's.
void* open_first(const std::vector<std::string>& names, const std::vector<fs::path>& folders) {
  for (const std::string& name : names)
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD)) return library;
  for (const std::string& name : names) {
    for (const fs::path& folder : folders)
      if (void* library = dlopen((folder / name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

std::string path_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "unknown place";
}

template <class Number>
std::string version_and_path(void* library, const char* function, std::string (*text)(Number)) {
  auto* get = library ? reinterpret_cast<int (*)(Number*)>(dlsym(library, function)) : nullptr;
  Number version{};
  if (get == nullptr || get(&version) != 0) return "";
  return text(version) + ", " + path_of(reinterpret_cast<void*>(get));
}

}  // namespace

std::map<std::string, std::string> gpu_libraries() {
  std::vector<fs::path> folders;
  if (const fs::path site = site_packages(); !site.empty()) {
    std::error_code error;
    for (const auto& package : fs::directory_iterator(site / "nvidia", error))
      folders.push_back(package.path() / "lib");
  }
  void* cupti = open_first({"libcupti.so.13", "libcupti.so.12"}, folders);
  void* nccl = open_first({"libnccl.so.2"}, folders);
  return {{"cupti", version_and_path(cupti, "cuptiGetVersion", cupti_version_text)},
          {"nccl", version_and_path(nccl, "ncclGetVersion", nccl_version_text)}};
}

std::string cupti_version_text(unsigned v) {
  if (v < 10'000) return "API " + std::to_string(v);
  return std::to_string(v / 10'000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

// Since 2.9: major * 10000 + minor * 100 + patch; before, major * 1000.
std::string nccl_version_text(int v) {
  const int major = v >= 10'000 ? v / 10'000 : v / 1000, rest = v >= 10'000 ? v % 10'000 : v % 1000;
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
}

}  // namespace harness
