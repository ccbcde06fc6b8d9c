// Our external correlation ids: what a launch was for, packed into the 64 bits that CUPTI hands back with it.
//   [63:56] 0xF5   [55:40] step   [39:24] unit + 1   [23:20] pass   [19:16] kind   [15:0] index of the size
// Sizes are few (a unit's buffers), so the tag holds their index in a table. Step and unit are taken modulo 2^16.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fsdp/device/device.h"

namespace harness {

struct StepTag {
  fsdp::WorkTag work;  // without bytes: the table knows them
  int step = 0;
  std::uint16_t size = 0;
};
std::uint64_t pack_tag(const StepTag& tag);
std::optional<StepTag> unpack_tag(std::uint64_t external_id);  // none: the id is not ours

// Thread-safe. Index 0 is size 0; past 2^16 sizes the rest have index 0.
class SizeTable {
 public:
  std::uint16_t index_of(fsdp::Bytes bytes);
  fsdp::Bytes bytes_at(std::uint16_t index) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<fsdp::Bytes, std::uint16_t> indices_;
  std::vector<fsdp::Bytes> sizes_{0};
};

}  // namespace harness
