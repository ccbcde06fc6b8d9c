// Scanning JSON text in place: no tree, no copies, one pass. All functions take [p, end) where at least kScanPadding
// readable bytes follow `end` and *end is 0.
//
// A scan ends in one of three ways. kShort says that the text stops inside the value: with more bytes the same scan may
// succeed. kBad says that no bytes to come can make it right; `at` is then where it went wrong.
#pragma once
#include <emmintrin.h>

#include <cstdint>
#include <string_view>

#include "fsdp/core/types.h"

namespace harness {

inline constexpr std::size_t kScanPadding = 64;
inline constexpr int kScanDepth = 200;
// Times beyond are damage: 126 years, so that differences of times never overflow.
inline constexpr fsdp::Nanos kLatestTime = 4'000'000'000'000'000'000;

enum class Scan : std::uint8_t { kOk, kShort, kBad };

struct JsonCursor {
  const char* p;
  const char* end;
  // Deviations that were let pass: a raw control character in a string, a comma before a closing bracket.
  std::uint32_t tolerated = 0;
  const char* first_tolerated = nullptr;

  void tolerate(const char* where) {
    if (tolerated++ == 0) first_tolerated = where;
  }
  bool more() const { return p < end; }
};

inline void skip_space(JsonCursor& c) {
  while (static_cast<unsigned char>(*c.p) <= ' ' && c.p < c.end) ++c.p;
}

// At the opening quote. The view excludes the quotes and keeps escapes as they are.
Scan scan_string(JsonCursor& c, std::string_view& out);
// Any value: passes over it. `out` is its text.
Scan scan_value(JsonCursor& c, std::string_view& out);
// Behind the opening bracket of an object or array, at `depth` open brackets: passes over the closing one.
Scan skip_to_close(JsonCursor& c, int depth);

// The value's text as nanoseconds, where the text counts microseconds: exact for up to three decimals, rounded to the
// nearest beyond. A number in quotes is taken too. False: not a finite number, or out of range.
bool micros_to_nanos(std::string_view text, fsdp::Nanos& out, bool* fractional = nullptr);
// Integers of any size up to 64 bits, in quotes or not; a fraction is cut off.
bool to_int(std::string_view text, std::int64_t& out);
// Without the quotes, escapes resolved; a broken escape is kept as it is. Not a string: the text itself.
std::string_view unquoted(std::string_view text);
void unescape(std::string_view raw, std::string& out);

// Calls f(key, value text) for each member of an object's text. False if the text is not a whole object.
template <class F>
bool for_each_member(std::string_view object, F f) {
  JsonCursor c{object.data(), object.data() + object.size()};
  if (object.empty() || *c.p != '{') return false;
  ++c.p;
  for (;;) {
    skip_space(c);
    if (!c.more()) return false;
    if (*c.p == '}') return true;
    if (*c.p == ',') {
      ++c.p;
      continue;
    }
    std::string_view key, value;
    if (*c.p != '"' || scan_string(c, key) != Scan::kOk) return false;
    skip_space(c);
    if (*c.p != ':') return false;
    ++c.p;
    skip_space(c);
    if (scan_value(c, value) != Scan::kOk) return false;
    f(key, value);
  }
}

}  // namespace harness
