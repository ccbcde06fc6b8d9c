// OutputFile: a text file that appears under its name only when it is whole and on disk (fsdp/core/files.h); gzip if
// the name ends in ".gz".
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace harness {

class OutputFile {
 public:
  // Throws fsdp::ConfigError if the file cannot be made. `follow`: its folder may be a link.
  explicit OutputFile(const std::string& path, bool follow = true);
  // Without close(): the unfinished file is removed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);  // throws fsdp::EnvironmentError when the disk is full
  void close();                       // the whole file gets its name, and the disk has it

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace harness
