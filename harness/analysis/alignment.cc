#include "harness/analysis/alignment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "harness/analysis/statistics.h"

namespace harness {
namespace {

using fsdp::Nanos;

constexpr double kMostDrift = 0.01;  // no clock is worse; of damaged times the line can have any slope

// (group, kind, sequence or place)
using Identity = std::tuple<std::string, int, std::int64_t>;
using Sightings = std::map<Identity, const Sighting*>;  // of a rank

Sightings identities(const std::vector<Sighting>& all, bool by_sequence) {
  Sightings out;
  std::map<std::pair<std::string, int>, std::int64_t> place;
  for (const Sighting& s : all) {
    const int kind = static_cast<int>(s.kind);
    out.emplace(Identity{s.group, kind, by_sequence ? s.sequence : place[{s.group, kind}]++}, &s);
  }
  return out;
}

Nanos spread(const std::vector<Nanos>& x) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  return *high - *low;
}

// delta(t) = offset + slope * (t - at) by least squares; the slope is kept only where it explains the deltas.
RankClock fit(const std::vector<Nanos>& times, const std::vector<Nanos>& deltas, Nanos resolution) {
  RankClock c;
  const std::size_t n = times.size();
  c.at = times[n / 2];
  c.offset = median(deltas);
  auto residuals = [&](double slope, Nanos offset) {
    std::vector<Nanos> r(n);
    for (std::size_t i = 0; i < n; ++i) {
      r[i] = deltas[i] - offset - static_cast<Nanos>(std::llround(slope * static_cast<double>(times[i] - c.at)));
    }
    return r;
  };
  std::vector<Nanos> best = residuals(0, c.offset);
  if (n >= 4) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto x = static_cast<double>(times[i] - c.at), y = static_cast<double>(deltas[i] - c.offset);
      sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    const double count = static_cast<double>(n), den = count * sxx - sx * sx;
    const double slope = den > 0 ? (count * sxy - sx * sy) / den : 0;
    if (std::abs(slope) < kMostDrift) {
      const Nanos offset = c.offset + static_cast<Nanos>(std::llround((sy - slope * sx) / count));
      const std::vector<Nanos> r = residuals(slope, offset);
      if (2 * spread(r) < spread(best)) {
        best = r;
        c.offset = offset;
        c.drift_ppm = slope * 1e6;
      }
    }
  }
  c.uncertainty = resolution;
  for (const Nanos r : best) c.uncertainty = std::max(c.uncertainty, std::abs(r));
  return c;
}

Nanos to_first(const RankClock& c, Nanos t) {
  const double drift = c.drift_ppm * 1e-6 * static_cast<double>(t - c.offset - c.at);
  return t - c.offset - static_cast<Nanos>(std::llround(drift));
}

// What every rank has seen, in order of its end on the first.
std::vector<Identity> in_all(const std::vector<Sightings>& ids, bool by_sequence) {
  std::vector<Identity> common;
  std::map<std::pair<std::string, int>, std::vector<std::int64_t>> counts;
  if (!by_sequence) {
    for (const auto& rank : ids) {
      std::map<std::pair<std::string, int>, std::int64_t> mine;
      for (const auto& [id, s] : rank) ++mine[{std::get<0>(id), std::get<1>(id)}];
      for (const auto& [key, n] : mine) counts[key].push_back(n);
    }
  }
  const Sightings first = ids.empty() ? Sightings{} : ids.front();
  for (const auto& entry : first) {
    const Identity& id = entry.first;
    bool everywhere = std::all_of(ids.begin(), ids.end(), [&](const auto& rank) { return rank.contains(id); });
    if (!by_sequence && everywhere) {
      // By place only where every rank has as many: else the places do not mean the same.
      const std::vector<std::int64_t>& n = counts[{std::get<0>(id), std::get<1>(id)}];
      everywhere = n.size() == ids.size() && std::equal(n.begin() + 1, n.end(), n.begin());
    }
    if (everywhere) common.push_back(id);
  }
  std::sort(common.begin(), common.end(),
            [&](const Identity& x, const Identity& y) { return ids[0].at(x)->end < ids[0].at(y)->end; });
  return common;
}

// Nobody left a collective before the last one had come.
bool all_meet(const std::vector<Sightings>& ids, const std::vector<Identity>& common) {
  return std::all_of(common.begin(), common.end(), [&](const Identity& id) {
    Nanos begin = ids[0].at(id)->begin, end = ids[0].at(id)->end;
    for (const Sightings& rank : ids) {
      begin = std::max(begin, rank.at(id)->begin);
      end = std::min(end, rank.at(id)->end);
    }
    return begin <= end;
  });
}

void describe(Alignment& a, const std::vector<Sightings>& ids, const std::vector<Identity>& common) {
  for (const Identity& id : common) {
    AlignedCollective c;
    Nanos latest_end = 0, earliest_end = 0;
    for (std::size_t r = 0; r < ids.size(); ++r) {
      const Sighting& s = *ids[r].at(id);
      const Nanos begin = to_first(a.clocks[r], s.begin), end = to_first(a.clocks[r], s.end);
      c.kind = s.kind;
      c.arrivals.push_back(begin);
      c.transfer = r == 0 ? end - begin : std::min(c.transfer, end - begin);
      latest_end = r == 0 ? end : std::max(latest_end, end);
      earliest_end = r == 0 ? end : std::min(earliest_end, end);
    }
    const auto last = std::max_element(c.arrivals.begin(), c.arrivals.end());
    c.last = static_cast<int>(last - c.arrivals.begin());
    for (const Nanos b : c.arrivals) c.waits.push_back(*last - b);
    c.start_skew = *std::max_element(c.waits.begin(), c.waits.end());
    c.end_skew = latest_end - earliest_end;
    a.collectives.push_back(std::move(c));
  }
  std::sort(a.collectives.begin(), a.collectives.end(),
            [](const AlignedCollective& x, const AlignedCollective& y) { return x.arrivals < y.arrivals; });
}

void summarize_skew(Alignment& a) {
  std::vector<Nanos> skews;
  for (const AlignedCollective& c : a.collectives) {
    if (c.start_skew >= a.uncertainty) skews.push_back(c.start_skew);
  }
  if (skews.empty()) return;
  const std::vector<Nanos> waits = waits_of_ranks(a);
  a.mean_skew = std::accumulate(skews.begin(), skews.end(), Nanos{0}) / static_cast<Nanos>(skews.size());
  a.median_skew = median(skews);
  const auto least = std::min_element(waits.begin(), waits.end()) - waits.begin();
  a.straggler = a.clocks[static_cast<std::size_t>(least)].rank;
  for (const AlignedCollective& c : a.collectives) a.straggler_last += c.last == least;
}

}  // namespace

std::vector<Nanos> waits_of_ranks(const Alignment& a) {
  std::vector<Nanos> waits(a.clocks.size(), 0);
  for (const AlignedCollective& c : a.collectives) {
    if (c.start_skew < a.uncertainty) continue;
    for (std::size_t r = 0; r < waits.size(); ++r) waits[r] += c.waits[r];
  }
  return waits;
}

Alignment align(const std::vector<int>& ranks, const std::vector<std::vector<Sighting>>& sightings, Nanos resolution,
                bool one_clock) {
  Alignment a;
  bool by_sequence = true;
  for (const auto& rank : sightings) {
    for (const Sighting& s : rank) by_sequence &= s.sequence >= 0;
  }
  std::vector<Sightings> ids;
  for (const auto& rank : sightings) ids.push_back(identities(rank, by_sequence));
  const std::vector<Identity> common = in_all(ids, by_sequence);
  if (common.empty()) {
    a.reason = "cannot align the ranks: no collective is in all of them";
    return a;
  }
  const bool keep = one_clock && all_meet(ids, common);
  std::vector<Nanos> uncertainties;
  for (std::size_t r = 0; r < ids.size(); ++r) {
    std::vector<Nanos> times, deltas;
    for (const Identity& id : common) {
      times.push_back(ids[0].at(id)->end);
      deltas.push_back(ids[r].at(id)->end - ids[0].at(id)->end);
    }
    RankClock c = r == 0 || keep ? RankClock{} : fit(times, deltas, resolution);
    c.rank = ranks[r];
    if (r == 0 || keep) c.at = times[times.size() / 2];
    if (keep) c.uncertainty = resolution;
    uncertainties.push_back(c.uncertainty);
    a.clocks.push_back(c);
  }
  std::sort(uncertainties.rbegin(), uncertainties.rend());
  a.uncertainty = uncertainties.size() > 1 ? uncertainties[0] + uncertainties[1] : 0;
  a.aligned = true;
  describe(a, ids, common);
  summarize_skew(a);
  return a;
}

}  // namespace harness
