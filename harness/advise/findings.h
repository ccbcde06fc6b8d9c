// Findings: what a sweep's records say, in plain words with the numbers they rest on. Pure functions of records; used
// by `recommend` and by reports.
#pragma once
#include <optional>
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

// Two measured neighbours on a line; points without a time are passed over.
struct NeighbourStep {
  std::size_t from = 0, to = 0;  // into the line's cases
  double change = 0;             // y(to) / y(from) - 1, per unit of work
  bool disjoint = false;         // the confidence intervals do not meet
  bool cliff = false;
  Growth growth;  // on the way to the slower one
};
std::vector<NeighbourStep> neighbour_steps(const CaseLine& line);

// The edge of what fits on a line that stands in the order of growing memory.
struct LineBoundary {
  std::optional<std::size_t> last_fit, first_oom;  // into the line's cases
  bool violated = false;                           // something fits beyond an out-of-memory case
};
// std::nullopt: no case of the line ran out of memory.
std::optional<LineBoundary> boundary_on(const CaseLine& line);

// The unit of work that makes points along this axis comparable: "token" when batch, seq or accumulate vary, "layer"
// for layers, else "step".
std::string work_unit(const std::string& axis);
CurvePoint curve_point(const CaseRecord& c, const std::string& axis);

}  // namespace harness
