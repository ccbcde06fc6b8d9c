// ByteSource: the bytes of a file, in order, plain or gzip (recognised by its first bytes, whatever the name).
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace harness {

class ByteSource {
 public:
  // Throws fsdp::ConfigError if the file cannot be opened or is a directory.
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fills [out, out + n); fewer bytes only at the end. After damage (a cut or corrupt gzip stream, a read error) what
  // was whole has been given and the end is reached.
  std::size_t read(char* out, std::size_t n);

  bool compressed() const;
  // Empty, or what is wrong with the file below the text: "gzip stream ends early at byte 1234 of the file".
  const std::string& damage() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace harness
