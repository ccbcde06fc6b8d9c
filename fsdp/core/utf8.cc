#include "fsdp/core/utf8.h"

#include <algorithm>

namespace fsdp {
namespace {

// Bytes of the code point that begins with `first`; 0: none begins so.
int length_from(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const int length = length_from(first);
  if (length <= 1) return {first, length};
  if (at + static_cast<std::size_t>(length) > text.size()) return {};
  char32_t value = first & (0xff >> (length + 1));
  for (std::size_t i = 1; i < static_cast<std::size_t>(length); ++i) {
    if (!continues(text[at + i])) return {};
    value = (value << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3f);
  }
  const char32_t smallest = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  if (value < smallest || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {};
  return {value, length};
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const int length = code_point_at(text, at).length;
    if (length == 0) return false;
    at += static_cast<std::size_t>(length);
  }
  return true;
}

std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const char c = text[text.size() - back];
    if (continues(c)) continue;
    return static_cast<std::size_t>(length_from(static_cast<unsigned char>(c))) > back ? back : 0;
  }
  return 0;
}

std::string_view utf8_prefix(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  while (end > 0 && bytes - end < 4 && continues(text[end])) --end;
  return text.substr(0, end);
}

}  // namespace fsdp
