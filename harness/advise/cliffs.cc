#include "harness/advise/cliffs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/analysis/statistics.h"

namespace harness {
namespace {

std::string words(PartitionClass c) {
  std::string s(name_of(c));
  std::replace(s.begin(), s.end(), '_', ' ');
  return s;
}

// Of computation that grew, per unit of work: what did it?
std::string compute_cause(const CurvePoint& fast, const CurvePoint& slow) {
  const auto compute = [](const CurvePoint& p) {
    return static_cast<double>((*p.partition)[static_cast<std::size_t>(PartitionClass::kCompute)] +
                               (*p.partition)[static_cast<std::size_t>(PartitionClass::kOverlapped)]) /
           p.work;
  };
  const double more = compute(slow) - compute(fast);
  const double contention = slow.contention_ns / slow.work - fast.contention_ns / fast.work;
  if (contention > more / 2) return "contention: communication runs beside computation and slows it";
  if (fast.checkpoint != slow.checkpoint) return "recompute: backward computes blocks again";
  return std::string(meaning_of(PartitionClass::kCompute));
}

}  // namespace

Growth growth_between(const CurvePoint& fast, const CurvePoint& slow) {
  Growth g;
  if (!fast.partition || !slow.partition) return g;
  constexpr auto kOverlapped = static_cast<std::size_t>(PartitionClass::kOverlapped);
  const auto more = [&](std::size_t i) {
    return static_cast<double>((*slow.partition)[i]) / slow.work -
           static_cast<double>((*fast.partition)[i]) / fast.work;
  };
  for (std::size_t i = 0; i < kPartitionClassCount; ++i) {
    if (i == kOverlapped) continue;
    const double d = more(i) + (i == static_cast<std::size_t>(PartitionClass::kCompute) ? more(kOverlapped) : 0);
    if (d <= 0) continue;
    g.parts.push_back({static_cast<PartitionClass>(i), d});
    g.total += d;
  }
  g.compute_why = compute_cause(fast, slow);
  std::stable_sort(g.parts.begin(), g.parts.end(),
                   [](const Growth::Part& a, const Growth::Part& b) { return a.ns > b.ns; });
  return g;
}

std::vector<CliffCause> causes_between(const CurvePoint& fast, const CurvePoint& slow) {
  const Growth g = growth_between(fast, slow);
  std::vector<CliffCause> causes;
  for (const Growth::Part& part : g.parts)
    causes.push_back({part.cls, part.ns / g.total,
                      part.cls == PartitionClass::kCompute ? g.compute_why : std::string(meaning_of(part.cls))});
  const std::size_t keep = !causes.empty() && causes.front().share >= 0.5 ? 1 : 2;
  if (causes.size() > keep) causes.resize(keep);
  return causes;
}

std::vector<Cliff> find_cliffs(const std::vector<CurvePoint>& curve, const CliffRule& rule) {
  std::vector<std::size_t> measured;
  for (std::size_t i = 0; i < curve.size(); ++i)
    if (curve[i].measured && curve[i].y > 0) measured.push_back(i);
  std::vector<double> steps;  // |log ratio| of each pair of neighbours
  for (std::size_t k = 0; k + 1 < measured.size(); ++k)
    steps.push_back(std::abs(std::log(curve[measured[k + 1]].y / curve[measured[k]].y)));

  std::vector<Cliff> out;
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const CurvePoint &a = curve[measured[k]], &b = curve[measured[k + 1]];
    const bool rises = b.y > a.y;
    const CurvePoint &fast = rises ? a : b, &slow = rises ? b : a;
    if (slow.y / fast.y < rule.least_ratio || fast.high >= slow.low) continue;
    if (measured.size() >= 4) {
      std::vector<double> others = steps;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
      if (steps[k] < rule.times_median_step * median(others)) continue;
    }
    Cliff c;
    c.fast = rises ? measured[k] : measured[k + 1];
    c.slow = rises ? measured[k + 1] : measured[k];
    c.ratio = slow.y / fast.y;
    c.causes = causes_between(fast, slow);
    c.gap_between = measured[k + 1] - measured[k] > 1;
    out.push_back(std::move(c));
  }
  return out;
}

std::string_view meaning_of(PartitionClass c) {
  switch (c) {
    case PartitionClass::kHost:
      return "host-bound: the host issues work more slowly than the device is done with it; merge units";
    case PartitionClass::kExposedAllGatherForward:
    case PartitionClass::kExposedAllGatherBackward:
    case PartitionClass::kExposedReduceScatter:
    case PartitionClass::kExposedOther:
      return "communication-bound";
    case PartitionClass::kMemoryWait:
      return "waiting for a place in memory or for a slot";
    case PartitionClass::kCopy:
      return "packing and casting";
    case PartitionClass::kCompute:
    case PartitionClass::kOverlapped:
      return "the same work takes longer: smaller matrix products, or a slower machine";
    case PartitionClass::kOptimizer:
      return "the optimizer is slower";
    case PartitionClass::kIdle:
      return "idle for no provable reason";
  }
  return "";
}

std::string describe(const Cliff& cliff, const std::vector<CurvePoint>& curve, const std::string& unit) {
  const CurvePoint &fast = curve[cliff.fast], &slow = curve[cliff.slow];
  std::string s = fmt::format("{} is {:.2f}x slower than {} ({:.3f} ms against {:.3f} ms per {})", slow.value,
                              cliff.ratio, fast.value, slow.y / 1e6, fast.y / 1e6, unit);
  if (cliff.gap_between) s += ", with points that could not be measured between the two";
  if (cliff.causes.empty()) return s + "; no partition was recorded to tell why";
  if (cliff.causes.size() == 1) {
    const CliffCause& c = cliff.causes.front();
    return s + fmt::format(": {} grew, {:.0f} % of all that grew ({})", words(c.cls), 100 * c.share, c.why);
  }
  return s + fmt::format(": mixed causes, {} ({:.0f} %) and {} ({:.0f} %)", words(cliff.causes[0].cls),
                         100 * cliff.causes[0].share, words(cliff.causes[1].cls), 100 * cliff.causes[1].share);
}

}  // namespace harness
