#include "reports/json_writer.h"

#include <fmt/format.h>

#include <cmath>

#include "fsdp/core/utf8.h"

namespace reports {
namespace {

// Marks, embeddings, overrides and isolates would reorder the text around them.
bool turns_direction(char32_t c) {
  return c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void append_code_point(std::string& out, std::string_view s, std::size_t at, fsdp::CodePoint p) {
  if (p.length == 0 || turns_direction(p.value)) {
    out += "\\ufffd";
  } else if (p.value == '"' || p.value == '\\') {
    out += '\\';
    out += static_cast<char>(p.value);
  } else if (p.value == '\n') {
    out += "\\n";
  } else if (p.value < 0x20 || p.value == 0x7f || p.value == '<' || p.value == '>' || p.value == '&' ||
             p.value == 0x2028 || p.value == 0x2029) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(p.value));
  } else {
    out.append(s.substr(at, static_cast<std::size_t>(p.length)));
  }
}

void append_string(std::string& out, std::string_view s, std::size_t limit) {
  out += '"';
  std::size_t at = 0;
  while (at < s.size()) {
    const fsdp::CodePoint p = fsdp::code_point_at(s, at);
    const auto step = static_cast<std::size_t>(p.length == 0 ? 1 : p.length);
    if (at + step > limit) {
      out += fmt::format("… ({} bytes in all)", s.size());
      break;
    }
    append_code_point(out, s, at, p);
    at += step;
  }
  out += '"';
}

}  // namespace

void JsonWriter::separate() {
  if (comma_) out_ += ',';
  comma_ = true;
}

JsonWriter& JsonWriter::open(char c) {
  separate();
  out_ += c;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char c) {
  out_ += c;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_string(out_, name, kStringLimit);
  out_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::int64_t v) {
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", v);
  return *this;
}

JsonWriter& JsonWriter::value(double v) {
  if (!std::isfinite(v)) return null();
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", v);
  return *this;
}

JsonWriter& JsonWriter::value(bool v) {
  separate();
  out_ += v ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view v, std::size_t limit) {
  separate();
  append_string(out_, v, limit);
  return *this;
}

JsonWriter& JsonWriter::null() {
  separate();
  out_ += "null";
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

std::string json_string(std::string_view text, std::size_t limit) {
  std::string out;
  append_string(out, text, limit);
  return out;
}

}  // namespace reports
