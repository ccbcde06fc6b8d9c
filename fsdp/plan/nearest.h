// "Did you mean": the names nearest to what was written, for error texts.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

// Insertions, deletions and replacements between the two, letter case ignored.
std::size_t edit_distance(std::string_view a, std::string_view b);
// At most n different candidates, "A, B, C": first those that begin with the text, then by distance, then in order.
std::string nearest_names(std::string_view text, const std::vector<std::string>& candidates, std::size_t n = 3);

}  // namespace fsdp
