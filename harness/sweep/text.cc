#include "harness/sweep/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "harness/workload/model_settings.h"

namespace harness {

std::string trim(const std::string& text) {
  const char* blank = " \t\r\n";
  const auto first = text.find_first_not_of(blank);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  std::size_t begin = 0;
  while (true) {
    const auto end = text.find(separator, begin);
    pieces.push_back(trim(text.substr(begin, end == std::string::npos ? end : end - begin)));
    if (end == std::string::npos) return pieces;
    begin = end + 1;
  }
}

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc{} || at != end) return std::nullopt;
  return value;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string with_place(const std::string& place, const std::string& message) {
  if (!message.empty() && message[0] == '[') return "[" + place + ": " + message.substr(1);
  return "[" + place + "] " + message;
}

std::uint64_t text_hash(const std::string& text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

std::string readable_value(const std::string& setting, const std::string& value) {
  return setting == "model" ? model_name(value) : value;
}

std::string axes_text(const std::vector<std::pair<std::string, std::string>>& axes, const std::string& of_none) {
  std::string out;
  for (const auto& [name, value] : axes) out += (out.empty() ? "" : ", ") + name + "=" + readable_value(name, value);
  return out.empty() ? of_none : out;
}

std::string hex(std::uint64_t value, int digits) {
  std::string out(static_cast<std::size_t>(digits), '0');
  for (int i = digits - 1; i >= 0; --i, value >>= 4) out[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 15];
  return out;
}

}  // namespace harness
