#include "harness/trace/json_text.h"

#include <cstdint>

namespace harness {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the valid UTF-8 sequence at text[i] (RFC 3629), 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) -> unsigned {
    return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u;
  };
  const auto follows = [&](std::size_t k, unsigned lo = 0x80, unsigned hi = 0xBF) {
    return byte(k) >= lo && byte(k) <= hi;
  };
  const unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return follows(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    const unsigned lo = b == 0xE0 ? 0xA0 : 0x80, hi = b == 0xED ? 0x9F : 0xBF;
    return follows(1, lo, hi) && follows(2) ? 3 : 0;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    const unsigned lo = b == 0xF0 ? 0x90 : 0x80, hi = b == 0xF4 ? 0x8F : 0xBF;
    return follows(1, lo, hi) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      out += '\\', out += text[i++];
    } else if (c == '\n') {
      out += "\\n", ++i;
    } else if (c < 0x20 || c == 0x7F) {
      out += "\\u00", out += kHex[c >> 4], out += kHex[c & 15], ++i;
    } else if (const std::size_t n = utf8_length(text, i)) {
      out.append(text, i, n), i += n;
    } else {
      out += kReplacement, ++i;
    }
  }
  out += '"';
}

void append_micros(std::string& out, fsdp::Nanos ns) {
  std::uint64_t v = static_cast<std::uint64_t>(ns);
  if (ns < 0) out += '-', v = 0 - v;
  out += std::to_string(v / 1000);
  const char decimals[] = {'.', static_cast<char>('0' + v / 100 % 10), static_cast<char>('0' + v / 10 % 10),
                           static_cast<char>('0' + v % 10)};
  out.append(decimals, sizeof decimals);
}

std::string grouped_micros(fsdp::Nanos ns) {
  std::string raw;
  append_micros(raw, ns);
  // Groups of three: 1234567.890 -> 1,234,567.890.
  const std::size_t point = raw.find('.');
  for (std::size_t i = point; i > 3 + (raw[0] == '-');) {
    i -= 3;
    if (i > (raw[0] == '-' ? 1u : 0u)) raw.insert(i, ",");
  }
  return raw;
}

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t n = utf8_length(text, i);
    if (c < 0x20 || c == 0x7F) {
      out += ' ', ++i;
    } else if (n > 0) {
      out.append(text, i, n), i += n;
    } else {
      out += kReplacement, ++i;
    }
  }
  return out;
}

}  // namespace harness
