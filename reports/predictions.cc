#include "reports/predictions.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

namespace reports {
namespace {

constexpr std::array<std::string_view, 4> kWhereItRan = {"device", "hardware", "seed", "collectives"};

std::string key_of(const harness::CaseRecord& c) {
  std::map<std::string, std::string> kept;
  for (const auto& [name, value] : c.settings) {
    if (std::find(kWhereItRan.begin(), kWhereItRan.end(), name) == kWhereItRan.end()) kept[name] = value;
  }
  std::string key;
  for (const auto& [name, value] : kept) key += name + '\0' + value + '\0';
  return key;
}

}  // namespace

std::vector<PredictedPair> predicted_pairs(const std::vector<ReportInput>& inputs) {
  std::map<std::string, CasePlace> measured;
  const auto for_each = [&](bool predicted, auto visit) {
    for (std::size_t s = 0; s < inputs.size(); ++s) {
      for (std::size_t i = 0; i < inputs[s].cases.size(); ++i) {
        const harness::CaseRecord& c = inputs[s].cases[i];
        if (harness::measured(c.status) && c.step_ns && c.predicted == predicted) visit(c, CasePlace{s, i});
      }
    }
  };
  for_each(false, [&](const auto& c, CasePlace place) { measured.emplace(key_of(c), place); });
  std::vector<PredictedPair> pairs;
  for_each(true, [&](const auto& c, CasePlace place) {
    const auto partner = measured.find(key_of(c));
    if (partner != measured.end()) pairs.push_back({place, partner->second});
  });
  return pairs;
}

}  // namespace reports
