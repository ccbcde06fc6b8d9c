// Findings: the answers to the three questions of a sweep, with the numbers they rest on. What the records say is
// decided in harness/advise; here it is put in the order of the axes and into words. Pure functions of records.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "harness/advise/recommend.h"
#include "reports/shape.h"

namespace reports {

// A sentence in pieces, so that a page can set numbers in bold and link cases.
struct Piece {
  std::string text;
  bool strong = false;
  std::optional<std::size_t> case_index;
};
using Sentence = std::vector<Piece>;
std::string plain(const Sentence& s);

struct Answer {
  std::string question;
  Sentence sentence;
  std::vector<Sentence> notes;
};

// harness::NeighbourStep by axis and case: what grew between two neighbouring values of an axis, the other settings
// equal.
struct NeighbourStep {
  std::size_t axis = 0;
  std::size_t from = 0, to = 0;  // cases
  double change = 0;             // cost(to) / cost(from) - 1
  bool disjoint = false;         // the confidence intervals do not meet
  bool cliff = false;
  std::optional<harness::PartitionClass> cause;  // the class that grew most on the way to the slower one
  double share = 0;                              // of all that grew; below one half: mixed
};

// harness::LineBoundary by axis and case: the edge of what fits along an axis, the other settings equal.
struct Boundary {
  std::size_t axis = 0;
  std::optional<std::size_t> last_fit, first_oom;  // cases; in the order of growing memory
  bool violated = false;                           // something fits beyond an out-of-memory case
};

struct Findings {
  std::optional<std::size_t> best, standard, worst;  // cases; best: recommended; standard: wrap block, prefetch pre
  std::vector<std::string> departures;  // of `standard` from the defaults, where the sweep does not offer them
  std::vector<std::size_t> pareto;      // cases that no other beats in both time and peak, by time
  Answer wrap, slow, fit;
  std::vector<NeighbourStep> steps;
  std::vector<Boundary> boundaries;
  bool per_token = false;  // costs are per token: batch, seq or accumulate vary
};
Findings find(const ReportInput& input, const SweepShape& shape, const Workload& workload);

// Time per step, or per token when `per_token`; std::nullopt when the case has none.
std::optional<double> cost_of(const harness::CaseRecord& c, bool per_token);

// The sentences, from everything else in `f` and what was recommended.
void write_answers(const ReportInput& input, const SweepShape& shape, const Workload& workload,
                   const harness::Recommendation& advice, Findings& f);

}  // namespace reports
