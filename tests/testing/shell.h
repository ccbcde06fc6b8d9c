// Commands for a shell, in a checkout whose path may hold anything.
#pragma once
#include <string>

namespace testing_support {

// One word of a command.
inline std::string shell_word(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace testing_support
