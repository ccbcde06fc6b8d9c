#include "harness/trace/imbalance.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace harness {

using fsdp::Nanos;
using fsdp::Span;

namespace {
// So that sums of waits fit.
constexpr Nanos kLongestTrace = 86'400'000'000'000;
constexpr std::size_t kMostCollectives = 1 << 16;
}  // namespace

std::optional<Imbalance> imbalance_of(const Alignment& alignment, const std::vector<RowAnalysis>& rows) {
  if (!alignment.aligned || alignment.clocks.size() < 2 || rows.size() != alignment.clocks.size()) return std::nullopt;
  const std::vector<Nanos> waits = waits_of_ranks(alignment);
  Imbalance out;
  double length = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RowAnalysis& row = rows[i];
    if (row.rank.value_or(0) != alignment.clocks[i].rank) return std::nullopt;
    const Nanos open = exposed(row.total.partition.classes);
    out.exposed_ns += static_cast<double>(open);
    out.waited_ns += static_cast<double>(std::min(waits[i], open));
    length += static_cast<double>(sum(row.total.partition.classes));
  }
  if (length <= 0) return std::nullopt;
  out.pct = 100 * out.waited_ns / length;
  return out;
}

std::string imbalance_text(const Imbalance& i) {
  char text[160];
  std::snprintf(text, sizeof text, "imbalance %.3g %% of the step: ranks wait in collectives for the last one to come",
                i.pct);
  const bool most = 2 * i.waited_ns > i.exposed_ns;
  return std::string(text) +
         (most ? "; most of the exposed communication is that: even out the ranks before the network" : "");
}

Alignment align_own(const std::vector<Span>& spans) {
  Nanos first = kLatestTime, last = -kLatestTime;
  for (const Span& s : spans) {
    if (!fsdp::is_collective(s.kind)) continue;
    first = std::min({first, s.begin, s.end});
    last = std::max({last, s.begin, s.end});
  }
  Alignment none;
  none.reason = "the collectives reach over more than a day";
  if (first < -kLatestTime || first > kLatestTime || last > first + kLongestTrace) return none;
  std::map<int, std::vector<Sighting>> ranks;
  for (const Span& s : spans) {
    std::vector<Sighting>& seen = ranks[s.rank];
    if (!fsdp::is_collective(s.kind) || seen.size() > kMostCollectives) continue;
    const std::string group = std::to_string(s.unit) + " " + std::string(fsdp::name_of(s.pass));
    seen.push_back({s.begin - first, s.end - first, s.kind, group, -1});
  }
  std::vector<int> names;
  std::vector<std::vector<Sighting>> sightings;
  for (auto& [rank, seen] : ranks) {
    none.reason = "too many collectives";
    if (seen.size() > kMostCollectives) return none;
    std::stable_sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    names.push_back(rank);
    sightings.push_back(std::move(seen));
  }
  return align(names, sightings, 1);
}

}  // namespace harness
