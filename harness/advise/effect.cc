#include "harness/advise/effect.h"

#include <algorithm>
#include <cmath>

#include "harness/analysis/signed_rank.h"
#include "harness/analysis/statistics.h"

namespace harness {
namespace {

constexpr double kLeastMargin = 0.01, kStoredMargin = 0.02;

void judge(Effect& e, double noise_floor, std::size_t samples) {
  e.margin = std::max(kLeastMargin, noise_floor);
  if (samples < 3) {
    e.verdict = Verdict::kUnknown;
    return;
  }
  const bool sure = e.low > 0 || e.high < 0;
  if (e.coverage < kLeastCoverage)
    e.verdict = Verdict::kAmbiguous;
  else if (e.low > -e.margin && e.high < e.margin)
    e.verdict = Verdict::kSame;
  else if (sure && e.effect > e.margin)
    e.verdict = Verdict::kSlower;
  else if (sure && e.effect < -e.margin)
    e.verdict = Verdict::kFaster;
  else
    e.verdict = Verdict::kAmbiguous;
}

}  // namespace

std::string_view name_of(Verdict v) {
  switch (v) {
    case Verdict::kSame:
      return "same";
    case Verdict::kFaster:
      return "faster";
    case Verdict::kSlower:
      return "slower";
    case Verdict::kAmbiguous:
      return "ambiguous";
    case Verdict::kUnknown:
      return "unknown";
  }
  return "?";
}

Effect paired_effect(const std::vector<fsdp::Nanos>& a, const std::vector<fsdp::Nanos>& b, double noise_floor) {
  Effect e;
  e.interleaved = true;
  const std::vector<double> ratios = log_ratios(a, b);
  const Location l = signed_rank_location(ratios);
  e.effect = std::expm1(l.estimate);
  e.low = std::expm1(l.low);
  e.high = std::expm1(l.high);
  e.coverage = l.coverage;
  judge(e, noise_floor < 0 ? kPairedMargin : noise_floor, ratios.size());
  return e;
}

Effect unpaired_effect(const std::vector<fsdp::Nanos>& a, const std::vector<fsdp::Nanos>& b, double noise_floor) {
  Effect e;
  const SampleSummary x = summarize(a), y = summarize(b);
  if (x.median > 0 && y.n > 0 && x.ci_low > 0) {
    e.effect = static_cast<double>(y.median) / static_cast<double>(x.median) - 1;
    e.low = static_cast<double>(y.ci_low) / static_cast<double>(x.ci_high) - 1;
    e.high = static_cast<double>(y.ci_high) / static_cast<double>(x.ci_low) - 1;
    e.coverage = std::min(x.coverage, y.coverage);
  }
  judge(e, noise_floor < 0 ? kStoredMargin : noise_floor, static_cast<std::size_t>(std::min(x.n, y.n)));
  return e;
}

Effect predicted_effect(fsdp::Nanos a, fsdp::Nanos b) {
  Effect e;
  if (a > 0) e.effect = e.low = e.high = static_cast<double>(b) / static_cast<double>(a) - 1;
  e.coverage = 1;
  e.margin = kLeastMargin;
  e.verdict = std::abs(e.effect) < e.margin ? Verdict::kSame : e.effect > 0 ? Verdict::kSlower : Verdict::kFaster;
  return e;
}

bool can_be_sure(const Effect& e) { return e.verdict != Verdict::kUnknown && e.coverage >= kLeastCoverage; }

bool gate_fails(const Effect& e, double gate) { return e.verdict == Verdict::kSlower && e.low > gate; }

bool gate_undecided(const Effect& e, double gate) { return !can_be_sure(e) && e.effect > gate; }

}  // namespace harness
