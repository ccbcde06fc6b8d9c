// OutputFile: a text file that appears under its name only when it is whole; gzip if the name ends in ".gz".
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace harness {

class OutputFile {
 public:
  // Throws fsdp::ConfigError if the file cannot be made.
  explicit OutputFile(const std::string& path);
  // Without close(): the unfinished file is removed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);  // throws fsdp::Error when the disk is full
  void close();                       // moves the whole file to its name

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace harness
