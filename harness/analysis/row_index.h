// RowIndex: finds the row of a list that has a key, in constant time however long the list: the first rows by looking,
// the others by a hash table. Lists are told apart by a number in the key.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "fsdp/core/span.h"

namespace harness {

struct RowKey {
  std::int32_t list = 0;
  fsdp::UnitId unit = fsdp::kNoUnit;
  std::uint8_t cls = 0;
  fsdp::Pass pass = fsdp::Pass::kNone;
  fsdp::SpanKind kind = fsdp::SpanKind::kCompute;
  friend bool operator==(const RowKey&, const RowKey&) = default;
};

struct RowKeyHash {
  std::size_t operator()(const RowKey& k) const {
    std::uint64_t h = std::uint64_t{static_cast<std::uint32_t>(k.list)} << 32 | static_cast<std::uint32_t>(k.unit);
    h ^= (std::uint64_t{k.cls} << 16 | std::uint64_t(k.pass) << 8 | std::uint64_t(k.kind)) * 0x9E3779B97F4A7C15u;
    h *= 0xff51afd7ed558ccdu;
    return static_cast<std::size_t>(h ^ h >> 33);
  }
};

class RowIndex {
 public:
  // The row of `rows` for which `same` holds, or a new one at its end, which `fresh` makes. `key` must tell rows apart
  // as `same` does.
  template <class Rows, class Same, class Fresh>
  typename Rows::value_type& row(Rows& rows, const RowKey& key, Same same, Fresh fresh) {
    const std::size_t look = rows.size() < kLook ? rows.size() : kLook;
    for (std::size_t i = 0; i < look; ++i) {
      if (same(rows[i])) return rows[i];
    }
    if (look == kLook) {
      const auto [it, is_new] = places_.try_emplace(key, rows.size());
      if (!is_new) return rows[it->second];
    }
    rows.push_back(fresh());
    return rows.back();
  }

 private:
  static constexpr std::size_t kLook = 16;
  std::unordered_map<RowKey, std::size_t, RowKeyHash> places_;
};

}  // namespace harness
