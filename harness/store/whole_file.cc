#include "harness/store/whole_file.h"

#include <fmt/format.h>

#include "fsdp/core/errors.h"
#include "fsdp/core/files.h"

namespace harness {

void check_writable(const std::string& option, const std::string& path) {
  try {
    fsdp::NewFile probe(path);
  } catch (const fsdp::Error&) {
    throw fsdp::ConfigError(fmt::format(
        "[{}] {} cannot be written; name a file in a directory that exists and can be written to", option, path));
  }
}

namespace {
void write_whole(fsdp::NewFile& file, const std::string& text) {
  file.remove_unfinished();
  file.write(text);
  file.commit();
}
}  // namespace

void write_file(const std::string& path, const std::string& text) {
  fsdp::NewFile file(path);
  write_whole(file, text);
}

void write_file(const fsdp::Folder& folder, const std::string& name, const std::string& text) {
  fsdp::NewFile file(folder, name);
  write_whole(file, text);
}

}  // namespace harness
