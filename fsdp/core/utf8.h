// UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace fsdp {

struct CodePoint {
  char32_t value = 0;
  int length = 0;  // bytes; 0: not UTF-8
};
CodePoint code_point_at(std::string_view text, std::size_t at);  // REQUIRES: at < text.size()
bool is_utf8(std::string_view text);

// The bytes at the end of `text` that begin a code point and need more to be one: 0 to 3.
std::size_t unfinished_bytes(std::string_view text);

// The longest beginning of at most `bytes` bytes that cuts no code point.
std::string_view utf8_prefix(std::string_view text, std::size_t bytes);

}  // namespace fsdp
