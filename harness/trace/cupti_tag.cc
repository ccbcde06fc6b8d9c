#include "harness/trace/cupti_tag.h"

namespace harness {
namespace {
constexpr std::uint64_t kMagic = 0xF5;
constexpr std::uint64_t k16 = 0xFFFF, k4 = 0xF;
}  // namespace

std::uint64_t pack_tag(const StepTag& t) {
  return kMagic << 56 | (static_cast<std::uint64_t>(t.step) & k16) << 40 |
         (static_cast<std::uint64_t>(t.work.unit + 1) & k16) << 24 |
         (static_cast<std::uint64_t>(t.work.pass) & k4) << 20 | (static_cast<std::uint64_t>(t.work.kind) & k4) << 16 |
         t.size;
}

std::optional<StepTag> unpack_tag(std::uint64_t id) {
  const auto kind = static_cast<std::uint8_t>(id >> 16 & k4), pass = static_cast<std::uint8_t>(id >> 20 & k4);
  if (id >> 56 != kMagic || kind > static_cast<std::uint8_t>(fsdp::SpanKind::kStep) ||
      pass > static_cast<std::uint8_t>(fsdp::Pass::kOptimizer))
    return std::nullopt;
  StepTag t;
  t.step = static_cast<int>(id >> 40 & k16);
  t.work.unit = static_cast<fsdp::UnitId>(id >> 24 & k16) - 1;
  t.work.pass = static_cast<fsdp::Pass>(pass);
  t.work.kind = static_cast<fsdp::SpanKind>(kind);
  t.size = static_cast<std::uint16_t>(id & k16);
  return t;
}

std::uint16_t SizeTable::index_of(fsdp::Bytes bytes) {
  if (bytes == 0) return 0;
  const std::lock_guard lock(mutex_);
  if (const auto found = indices_.find(bytes); found != indices_.end()) return found->second;
  if (sizes_.size() > k16) return 0;
  const auto index = static_cast<std::uint16_t>(sizes_.size());
  indices_.emplace(bytes, index);
  sizes_.push_back(bytes);
  return index;
}

fsdp::Bytes SizeTable::bytes_at(std::uint16_t index) const {
  const std::lock_guard lock(mutex_);
  return index < sizes_.size() ? sizes_[index] : 0;
}

}  // namespace harness
