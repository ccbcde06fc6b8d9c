// Recommend: from the cases of a sweep to a policy, with what it beats and by how much. Pure functions of records.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "harness/advise/findings.h"
#include "harness/advise/snippet.h"
#include "harness/store/records.h"

namespace harness {

struct RecommendOptions {
  std::optional<fsdp::Bytes> memory;  // absent: the cases' memory_budget; that absent too: no limit
  double margin = 0.05;               // of the limit, left free
  bool single_modules = false;        // only units that FSDP1 can hold
};

struct Contender {
  std::size_t index = 0;     // into the cases
  double cost = 0;           // ns per step, or per token where the work of cases differs
  double low = 0, high = 0;  // interval of the cost
  fsdp::Bytes peak = 0;      // 0: not known
  std::string why;           // for runners-up and what did not fit: a sentence
};

// One recommendation for one workload: cases that train the same model on the same machine and world.
struct Recommendation {
  std::string workload;  // "llama (layers=8), world 2, cpu"
  std::string unit;      // "step" or "token"
  std::optional<fsdp::Bytes> limit;
  std::optional<Contender> best;      // absent: nothing fits
  std::vector<Contender> runners_up;  // at most two
  std::vector<Contender> too_large;   // faster than the best, but over the limit or without the margin; at most two
  std::vector<Contender> group;       // of predicted cases: as fast as the best within the error of the prediction
  double group_error = 0;             // the largest of them
  std::vector<Contender> pareto;      // no other is both faster and smaller; by cost
  std::vector<std::string> reasons;   // sentences with numbers
  std::vector<std::string> warnings;
  Confidence confidence = Confidence::kMedium;
  std::string confidence_why;
};

// Of several recommendations those that `wanted` names: by their label, by parts of it ("world 4"), or by a piece of
// its text. Throws fsdp::ConfigError, with the labels, when it names none or several.
const Recommendation& recommendation_for(const std::vector<Recommendation>& all, const std::string& wanted);

std::vector<Recommendation> recommend(const std::vector<CaseRecord>& cases, const RecommendOptions& options);
// Among these cases only (indices, at least one), which the caller holds to be choices for one job.
Recommendation recommend_among(const std::vector<CaseRecord>& cases, const std::vector<std::size_t>& members,
                               const RecommendOptions& options);

// Returns the settings that a record was run with. A setting that only a prediction reads (a preset of another version)
// stands at its default when it cannot be read, because no policy rests on it; any other throws fsdp::ConfigError.
CaseSettings settings_of(const CaseRecord& c);
// "wrap=block, backward_prefetch=pre": the sweep's axes, or the policy settings where there are none.
std::string label_of(const CaseRecord& c);

// For a terminal, and as JSON; `snippet` may be empty.
std::string recommendation_text(const Recommendation& r, const std::vector<CaseRecord>& cases);
std::string recommendations_json(const std::vector<Recommendation>& all, const std::vector<CaseRecord>& cases);

}  // namespace harness
