#include "harness/store/whole_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fsdp/core/errors.h"

namespace harness {

namespace {
constexpr const char* kUnfinished = ".part";
}

void check_writable(const std::string& option, const std::string& path) {
  const std::string unfinished = path + kUnfinished;
  std::error_code error;
  const bool there = std::filesystem::exists(unfinished, error);
  if (std::filesystem::is_directory(path, error) || !std::ofstream(unfinished, std::ios::app))
    throw fsdp::ConfigError(fmt::format(
        "[{}] {} cannot be written; name a file in a directory that exists and can be written to", option, path));
  if (!there) std::filesystem::remove(unfinished, error);
}

void write_file(const std::string& path, const std::string& text) {
  const std::string unfinished = path + kUnfinished;
  std::ofstream out(unfinished, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(unfinished, path, error);
  if (!out || error) {
    const std::string why = error ? error.message() : std::strerror(errno);
    std::filesystem::remove(unfinished, error);
    throw fsdp::ConfigError(fmt::format("[{}] cannot be written: {}; give a path in a directory that can", path, why));
  }
}

}  // namespace harness
