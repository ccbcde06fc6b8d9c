#include "fsdp/plan/nearest.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace fsdp {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool begins_with(std::string_view text, std::string_view start) {
  return text.size() >= start.size() &&
         std::equal(start.begin(), start.end(), text.begin(), [](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

std::string nearest_names(std::string_view text, const std::vector<std::string>& candidates, std::size_t n) {
  constexpr std::size_t kNotABeginning = 1'000'000;  // what was written is often a beginning: those come first
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& c : candidates) {
    const bool known = std::any_of(ranked.begin(), ranked.end(), [&](const auto& r) { return r.second == c; });
    if (!known && !c.empty())
      ranked.emplace_back(edit_distance(text, c) + (begins_with(c, text) ? 0 : kNotABeginning), c);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
  std::string names;
  for (std::size_t i = 0; i < std::min(n, ranked.size()); ++i) names += (i ? ", " : "") + ranked[i].second;
  return names;
}

}  // namespace fsdp
