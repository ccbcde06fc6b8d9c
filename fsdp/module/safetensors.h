// Files of named fp32 arrays in the safetensors format: 8 bytes little-endian length of the header, the header as JSON
// ({name: {dtype, shape, data_offsets}, "__metadata__": {string: string}}), the arrays one after the other. Plain C++.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace fsdp {

struct FloatArray {
  std::string name;
  const float* data = nullptr;
  Count count = 0;
};

// Writes the file and has the system put it on disk before it returns. Throws EnvironmentError.
void write_safetensors(const std::string& path, const std::vector<FloatArray>& arrays,
                       const std::map<std::string, std::string>& metadata);

// Reads the header at once, arrays piece by piece. Throws EnvironmentError for what cannot be read, ConfigError for
// what is no such file or holds other types.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(std::string path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return arrays_.contains(name); }
  std::vector<std::string> names() const;
  Count count(const std::string& name) const { return arrays_.at(name).count; }
  // Elements [begin, begin + n) of an array.
  void read(const std::string& name, Count begin, Count n, float* out) const;

 private:
  struct Place {
    std::int64_t at = 0;  // in the file, bytes
    Count count = 0;
  };
  void read_bytes(std::int64_t at, void* out, std::size_t n) const;

  const std::string path_;
  int fd_ = -1;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Place> arrays_;
};

}  // namespace fsdp
