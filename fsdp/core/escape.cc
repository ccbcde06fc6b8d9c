#include "fsdp/core/escape.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "fsdp/core/utf8.h"

namespace fsdp {
namespace {

constexpr std::string_view kNotText = "\xef\xbf\xbd";  // U+FFFD

// "\u" and four digits, "\U" and eight.
std::string numbered(char letter, char32_t value) {
  std::string out(letter == 'u' ? 6 : 10, '\\');
  out[1] = letter;
  for (std::size_t at = out.size(); at-- > 2; value >>= 4) out[at] = "0123456789abcdef"[value & 15];
  return out;
}

// "\u001b", beyond the basic plane as JSON has it, in two halves.
std::string escape_of(char32_t c) {
  if (c < 0x10000) return numbered('u', c);
  c -= 0x10000;
  return numbered('u', 0xd800 + (c >> 10)).append(numbered('u', 0xdc00 + (c & 0x3ff)));
}

// `write(code point, its bytes)` for each; a byte that is not UTF-8 comes as U+FFFD.
template <class Write>
void each_code_point(std::string_view text, Write&& write) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint p = code_point_at(text, at);
    if (p.length == 0) {
      write(char32_t{0xfffd}, kNotText);
      ++at;
    } else {
      write(p.value, text.substr(at, static_cast<std::size_t>(p.length)));
      at += static_cast<std::size_t>(p.length);
    }
  }
}

template <class Acts>
std::string escaped_where(std::string_view text, Acts&& is_escaped) {
  std::string out;
  out.reserve(text.size());
  each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (is_escaped(c)) {
      out += escape_of(c);
    } else {
      out += bytes;
    }
  });
  return out;
}

// The body of a literal; in an f-string braces are doubled.
std::string python_body(std::string_view text, bool format) {
  std::string out;
  each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (c == '"' || c == '\\') {
      out.append("\\").append(bytes);
    } else if (format && (c == '{' || c == '}')) {
      out.append(bytes).append(bytes);
    } else if (c >= 0x20 && c < 0x7f) {
      out += bytes;
    } else {
      out += numbered(c < 0x10000 ? 'u' : 'U', c);
    }
  });
  return out;
}

}  // namespace

bool acts(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  static constexpr std::array<Range, 11> kActing = {{{0x00, 0x08},
                                                     {0x0b, 0x1f},
                                                     {0x7f, 0x9f},
                                                     {0x061c, 0x061c},
                                                     {0x200b, 0x200b},
                                                     {0x200e, 0x200f},
                                                     {0x2028, 0x202e},
                                                     {0x2060, 0x2069},
                                                     {0xfeff, 0xfeff},
                                                     {0xfff9, 0xfffb},
                                                     {0xe0000, 0xe007f}}};
  return std::any_of(kActing.begin(), kActing.end(), [c](const Range& r) { return c >= r.first && c <= r.last; });
}

std::string terminal_text(std::string_view text) { return escaped_where(text, acts); }

std::string one_line(std::string_view text) {
  return escaped_where(text, [](char32_t c) { return acts(c) || c == '\n' || c == '\t'; });
}

std::string python_comment(std::string_view text) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    std::string line = terminal_text(text.substr(from, end - from));
    // "coding:" or "coding=" in one of the first two lines declares an encoding, in which the rest may say anything.
    for (std::size_t at = line.find("coding"); at != std::string::npos; at = line.find("coding", at + 6))
      if (at + 6 < line.size() && (line[at + 6] == ':' || line[at + 6] == '=')) line.insert(at + 6, " ");
    out.append("# ").append(line).append(1, '\n');
    from = end + 1;
  }
  return out;
}

std::string python_string(std::string_view text) {
  return std::string(1, '"').append(python_body(text, false)).append(1, '"');
}
std::string python_format_text(std::string_view text) { return python_body(text, true); }

std::string yaml_string(std::string_view text) {
  std::string out = "\"";
  each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (c == '"' || c == '\\') {
      out.append("\\").append(bytes);
    } else if (c == '\n' || c == '\t' || acts(c)) {
      out += numbered(c < 0x10000 ? 'u' : 'U', c);
    } else {
      out += bytes;
    }
  });
  return out.append(1, '"');
}

std::string html_text(std::string_view text) {
  std::string out;
  each_code_point(text, [&](char32_t c, std::string_view bytes) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        acts(c) ? out += kNotText : out += bytes;
    }
  });
  return out;
}

std::string shell_quoted(std::string_view word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_=,.:/+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string out = "'";
  for (const char c : word) c == '\'' ? out += "'\\''" : out += c;
  return out.append(1, '\'');
}

}  // namespace fsdp
