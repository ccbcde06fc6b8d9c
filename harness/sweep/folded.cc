#include "harness/sweep/folded.h"

#include <algorithm>

namespace harness {
namespace {

std::string trim_end(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// The byte at which `line` has shown `columns` characters.
std::size_t byte_of_column(const std::string& line, std::size_t columns) {
  std::size_t at = 0, shown = 0;
  while (at < line.size() && (shown < columns || !begins_character(line[at]))) shown += begins_character(line[at++]);
  return at;
}

}  // namespace

std::string folded(const std::string& text, std::size_t columns) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    std::string line = text.substr(from, end - from);
    const std::size_t indent = std::min(line.find_first_not_of(' '), columns / 2);
    for (std::size_t cut = byte_of_column(line, columns); cut < line.size(); cut = byte_of_column(line, columns)) {
      const std::size_t blank = line.rfind(' ', cut);
      const std::size_t first = line.find_first_not_of(' ');
      const bool between = blank != std::string::npos && blank > first;
      out += trim_end(line.substr(0, between ? blank : cut)) + "\n";
      line = std::string(indent + 4, ' ') + line.substr(between ? line.find_first_not_of(' ', blank) : cut);
    }
    out += line;
    if (end < text.size()) out += '\n';
    from = end + 1;
  }
  return out;
}

}  // namespace harness
