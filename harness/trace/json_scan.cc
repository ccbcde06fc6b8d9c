#include "harness/trace/json_scan.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

namespace harness {
namespace {

// Where a line that begins inside a string looks like the next line of a trace, a closing quote was lost before it.
bool looks_like_next_line(const char* p, const char* end) {
  while (p < end && static_cast<unsigned char>(*p) <= ' ') ++p;
  return p < end && (*p == '{' || *p == '}' || *p == ']' || (*p == '"' && p + 1 < end && p[1] != ',' && p[1] != '}'));
}

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// 1: opens, 2: closes, 3: quote, 0: else.
constexpr std::array<std::uint8_t, 256> make_kinds() {
  std::array<std::uint8_t, 256> k{};
  k['{'] = k['['] = 1;
  k['}'] = k[']'] = 2;
  k['"'] = 3;
  return k;
}
constexpr std::array<std::uint8_t, 256> kKinds = make_kinds();

// The mask of bytes that end a run of plain string characters: quote, backslash, control character.
inline unsigned string_stops(const char* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"')), slash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
  const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v);
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), control)));
}

// The mask of brackets and quotes.
inline unsigned structure_stops(const char* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"'));
  // '[' 5B, ']' 5D, '{' 7B, '}' 7D: equal up to the bits 20 and 06.
  const __m128i folded = _mm_or_si128(v, _mm_set1_epi8(0x26));
  const __m128i bracket = _mm_cmpeq_epi8(folded, _mm_set1_epi8(0x7f));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(quote, bracket)));
}

}  // namespace

Scan scan_string(JsonCursor& c, std::string_view& out) {
  const char* const begin = c.p + 1;
  const char* p = begin;
  for (;;) {
    const unsigned stops = string_stops(p);
    if (stops == 0) {
      p += 16;
      if (p >= c.end) return Scan::kShort;
      continue;
    }
    p += __builtin_ctz(stops);
    if (p >= c.end) return Scan::kShort;
    if (*p == '"') {
      out = {begin, static_cast<std::size_t>(p - begin)};
      c.p = p + 1;
      return Scan::kOk;
    }
    if (*p == '\\') {
      if (p + 1 >= c.end) return Scan::kShort;
      p += 2;
      continue;
    }
    if (*p == '\n' && looks_like_next_line(p, c.end)) {
      c.p = p;
      return Scan::kBad;
    }
    c.tolerate(p++);
  }
}

Scan skip_to_close(JsonCursor& c, int depth) {
  const char* p = c.p;
  for (;;) {
    unsigned stops = structure_stops(p);
    const char* const block = p;
    p += 16;
    for (; stops != 0; stops &= stops - 1) {
      const char* s = block + __builtin_ctz(stops);
      if (s >= c.end) return Scan::kShort;
      const std::uint8_t kind = kKinds[static_cast<unsigned char>(*s)];
      if (kind == 1) {
        if (++depth > kScanDepth) {
          c.p = s;
          return Scan::kBad;
        }
      } else if (kind == 2) {
        if (--depth == 0) {
          c.p = s + 1;
          return Scan::kOk;
        }
      } else if (kind == 3) {
        c.p = s;
        std::string_view ignored;
        const Scan r = scan_string(c, ignored);
        if (r != Scan::kOk) return r;
        p = c.p;
        break;
      }
    }
    if (p >= c.end) return Scan::kShort;
  }
}

Scan scan_value(JsonCursor& c, std::string_view& out) {
  const char* const begin = c.p;
  if (!c.more()) return Scan::kShort;
  if (*begin == '"') {
    const Scan r = scan_string(c, out);
    if (r == Scan::kOk) out = {begin, static_cast<std::size_t>(c.p - begin)};
    return r;
  }
  if (*begin == '{' || *begin == '[') {
    ++c.p;
    const Scan r = skip_to_close(c, 1);
    if (r == Scan::kOk) out = {begin, static_cast<std::size_t>(c.p - begin)};
    return r;
  }
  const char* p = begin;
  while (*p != ',' && *p != '}' && *p != ']' && static_cast<unsigned char>(*p) > ' ') {
    if (*p == '"' || *p == '{' || *p == '[' || *p == ':') return Scan::kBad;
    ++p;
  }
  if (p >= c.end) return Scan::kShort;
  if (p == begin) return Scan::kBad;
  out = {begin, static_cast<std::size_t>(p - begin)};
  c.p = p;
  return Scan::kOk;
}

std::string_view unquoted(std::string_view text) {
  return text.size() >= 2 && text.front() == '"' ? text.substr(1, text.size() - 2) : text;
}

namespace {

// Numbers with an exponent: rare, so through the widest float.
bool micros_with_exponent(std::string_view t, fsdp::Nanos& out) {
  char copy[64];
  if (t.size() >= sizeof copy) return false;
  t.copy(copy, t.size());
  copy[t.size()] = 0;
  char* rest = nullptr;
  const long double v = std::strtold(copy, &rest) * 1000;
  if (rest != copy + t.size() || !std::isfinite(v) || std::fabs(v) > static_cast<long double>(kLatestTime))
    return false;
  out = static_cast<fsdp::Nanos>(std::llround(v));
  return true;
}

}  // namespace

bool micros_to_nanos(std::string_view text, fsdp::Nanos& out, bool* fractional) {
  const std::string_view t = unquoted(text);
  std::size_t i = 0;
  const bool negative = !t.empty() && t[0] == '-';
  i += negative;
  std::uint64_t whole = 0;
  const std::size_t digits = i;
  for (; i < t.size() && static_cast<unsigned>(t[i] - '0') < 10; ++i) {
    if (i - digits >= 16) return false;  // 10^16 us are 300 years
    whole = whole * 10 + static_cast<unsigned>(t[i] - '0');
  }
  if (i == digits) return false;
  std::uint64_t ns = whole * 1000;
  if (i < t.size() && t[i] == '.') {
    if (fractional != nullptr) *fractional = true;
    unsigned scale = 100;
    std::size_t k = i + 1;
    for (; k < t.size() && static_cast<unsigned>(t[k] - '0') < 10; ++k) {
      const unsigned d = static_cast<unsigned>(t[k] - '0');
      if (k == i + 4) ns += d >= 5;
      ns += d * scale;
      scale /= 10;
    }
    if (k == i + 1) return false;
    i = k;
  }
  if (i < t.size() && (t[i] == 'e' || t[i] == 'E')) return micros_with_exponent(t, out);
  if (i != t.size() || ns > static_cast<std::uint64_t>(kLatestTime)) return false;
  out = negative ? -static_cast<fsdp::Nanos>(ns) : static_cast<fsdp::Nanos>(ns);
  return true;
}

bool to_int(std::string_view text, std::int64_t& out) {
  const std::string_view t = unquoted(text);
  std::size_t i = 0;
  const bool negative = !t.empty() && t[0] == '-';
  i += negative;
  std::uint64_t v = 0;
  const std::size_t digits = i;
  for (; i < t.size() && static_cast<unsigned>(t[i] - '0') < 10; ++i) {
    if (i - digits >= 20) return false;
    v = v * 10 + static_cast<unsigned>(t[i] - '0');
  }
  if (i == digits || (i < t.size() && t[i] != '.')) return false;
  out = static_cast<std::int64_t>(negative ? 0 - v : v);
  return true;
}

void unescape(std::string_view raw, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 >= raw.size()) {
      out += raw[i];
      continue;
    }
    const char e = raw[i + 1];
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    const std::size_t k = kFrom.find(e);
    if (k != std::string_view::npos) {
      out += kTo[k];
      ++i;
    } else if (e == 'u' && i + 5 < raw.size() && is_hex(raw[i + 2]) && is_hex(raw[i + 3]) && is_hex(raw[i + 4]) &&
               is_hex(raw[i + 5])) {
      const unsigned u = static_cast<unsigned>(std::strtoul(std::string(raw.substr(i + 2, 4)).c_str(), nullptr, 16));
      if (u < 0x80) {
        out += static_cast<char>(u);
      } else if (u < 0x800) {
        out += static_cast<char>(0xC0 | u >> 6), out += static_cast<char>(0x80 | (u & 63));
      } else {
        out += static_cast<char>(0xE0 | u >> 12), out += static_cast<char>(0x80 | (u >> 6 & 63)),
            out += static_cast<char>(0x80 | (u & 63));
      }
      i += 5;
    } else {
      out += raw[i];  // "C:\x": kept
    }
  }
}

}  // namespace harness
