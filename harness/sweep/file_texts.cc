#include "harness/sweep/file_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "fsdp/core/errors.h"
#include "fsdp/core/files.h"

namespace harness {
namespace {

std::shared_ptr<const FileText> find(const Files& files, const std::string& path) {
  const auto found = std::find_if(files.begin(), files.end(), [&](const auto& f) { return f->path == path; });
  return found == files.end() ? nullptr : *found;
}

bool on_disk(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

std::shared_ptr<const FileText> FileTexts::read(const std::string& path, const std::string& what) {
  if (auto taken = find(taken_, path)) return taken;
  auto file = on_disk(path) ? nullptr : find(kept_, path);
  if (!file && disk_ == Disk::kClosed)
    throw fsdp::ConfigError(fmt::format("{} was not sent along; send it, or give {}", path, what));
  if (!file) {
    fsdp::SmallFile small = fsdp::read_small(path, fsdp::kLargestSmallFile);
    if (!small.problem.empty()) throw fsdp::ConfigError(fmt::format("{} {}; give {}", path, small.problem, what));
    file = std::make_shared<FileText>(FileText{path, std::move(small.text)});
  }
  taken_.push_back(file);
  return file;
}

bool FileTexts::has(const std::string& path) const { return find(taken_, path) || find(kept_, path) || on_disk(path); }

void FileTexts::give(FileText file) { taken_.insert(taken_.begin(), std::make_shared<FileText>(std::move(file))); }

std::string read_small_file(const std::string& path, std::size_t limit, const std::string& what) {
  fsdp::SmallFile file = fsdp::read_small(path, limit, fsdp::Pipes::kRead);
  if (!file.problem.empty()) throw fsdp::ConfigError(fmt::format("[{}] {}; give {}", path, file.problem, what));
  return std::move(file.text);
}

}  // namespace harness
