#include "harness/trace/imbalance.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

namespace harness {

using fsdp::Nanos;
using fsdp::Span;

namespace {
// So that sums of waits fit.
constexpr Nanos kLongestTrace = 86'400'000'000'000;
constexpr std::size_t kMostCollectives = 1 << 16;

// A unit whose gradients are both scattered and reduced among replicas.
bool has_replicas(const std::vector<Span>& spans) {
  std::set<fsdp::UnitId> scattered, reduced;
  for (const Span& s : spans) {
    if (s.unit == fsdp::kNoUnit) continue;
    if (s.kind == fsdp::SpanKind::kReduceScatter) scattered.insert(s.unit);
    if (s.kind == fsdp::SpanKind::kAllReduce) reduced.insert(s.unit);
  }
  return std::any_of(scattered.begin(), scattered.end(), [&](fsdp::UnitId u) { return reduced.count(u) != 0; });
}

// Units whose gathers in backward groups of ranks may have among themselves.
std::set<fsdp::UnitId> regathered(const std::vector<Span>& spans, const OwnRun& run) {
  if (run.regathered) return *run.regathered;
  std::set<fsdp::UnitId> units;
  for (const Span& s : spans)
    if (s.kind == fsdp::SpanKind::kAllGather && s.pass == fsdp::Pass::kForward) units.insert(s.unit);
  return units;
}
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

std::optional<Alignment> align_own(const std::vector<Span>& spans, const OwnRun& run) {
  if (has_replicas(spans)) return std::nullopt;
  Nanos first = kLatestTime, last = -kLatestTime;
  for (const Span& s : spans) {
    if (!fsdp::is_collective(s.kind)) continue;
    first = std::min({first, s.begin, s.end});
    last = std::max({last, s.begin, s.end});
  }
  if (first < -kLatestTime || first > kLatestTime || last > first + kLongestTrace) return std::nullopt;
  const std::set<fsdp::UnitId> in_groups = regathered(spans, run);
  std::map<int, std::vector<Sighting>> ranks;
  for (const Span& s : spans) {
    std::vector<Sighting>& seen = ranks[s.rank];
    if (!fsdp::is_collective(s.kind) || seen.size() > kMostCollectives) continue;
    const bool again = s.kind == fsdp::SpanKind::kAllGather && s.pass == fsdp::Pass::kBackward;
    if (again && in_groups.contains(s.unit)) continue;
    const std::string group = std::to_string(s.unit) + " " + std::string(fsdp::name_of(s.pass));
    seen.push_back({s.begin - first, s.end - first, s.kind, group, -1});
  }
  std::vector<int> names;
  std::vector<std::vector<Sighting>> sightings;
  for (auto& [rank, seen] : ranks) {
    if (seen.size() > kMostCollectives) return std::nullopt;
    std::stable_sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    names.push_back(rank);
    sightings.push_back(std::move(seen));
  }
  return align(names, sightings, 1, run.one_clock);
}

}  // namespace harness
