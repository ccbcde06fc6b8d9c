// Text for a terminal of a given width.
#pragma once
#include <cstddef>
#include <string>

namespace harness {

// Lines of at most so many columns, broken at blanks, a word that is longer inside; what follows a break stands four
// columns to the right of its line's beginning.
std::string folded(const std::string& text, std::size_t columns);

}  // namespace harness
