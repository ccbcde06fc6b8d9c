// Findings: what a sweep's records say, in plain words with the numbers they rest on. Pure functions of records; used
// by `recommend` and by reports.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "harness/advise/cliffs.h"
#include "harness/store/records.h"

namespace harness {

enum class Confidence : std::uint8_t { kLow, kMedium, kHigh };
std::string_view name_of(Confidence c);  // "low", "medium", "high"

struct Finding {
  enum class Kind : std::uint8_t {
    kCliff,
    kBoundary,   // the largest value that fits and the smallest that does not
    kNearOom,    // the region below a boundary that is near the limit
    kViolation,  // something larger fits although something smaller does not
    kSamples,    // a case's samples: warm-up, drift, outliers
    kObserver,   // tracing changed what it explains
  } kind;
  std::string text;                // a sentence with numbers
  std::string axis;                // for cliffs and boundaries
  std::string where;               // the other axes' values, "wrap=block, seq=128"; empty when there is no other axis
  std::vector<std::string> cases;  // ids, in the order of the axis
  std::vector<std::pair<std::string, double>> numbers;  // by name: "ratio", "share", "fast_ns", "slow_ns", ...
  Confidence confidence = Confidence::kMedium;
};
std::string_view name_of(Finding::Kind kind);

// `axes`: the sweep's, in its order. Cliffs are ranked by ratio, the largest first; boundaries follow.
std::vector<Finding> find_findings(const std::vector<std::pair<std::string, std::vector<std::string>>>& axes,
                                   const std::vector<CaseRecord>& cases);

// One line of cases along an axis, everything else equal, in the order of the axis's values.
struct CaseLine {
  std::string axis, where;
  std::vector<const CaseRecord*> cases;
};
std::vector<CaseLine> lines_along(const std::vector<std::pair<std::string, std::vector<std::string>>>& axes,
                                  const std::vector<CaseRecord>& cases, const std::string& axis);

// The unit of work that makes points along this axis comparable: "token" when batch, seq or accumulate vary, "layer"
// for layers, else "step".
std::string work_unit(const std::string& axis);
CurvePoint curve_point(const CaseRecord& c, const std::string& axis);

}  // namespace harness
