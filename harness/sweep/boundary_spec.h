// `boundary:` of a sweep spec: which setting is searched, over which values, for each point of the other axes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "harness/sweep/settings.h"

namespace harness {

struct BoundarySpec {
  // A setting with whole numbers (batch, seq, forward_prefetch, ...), a dimension of the model (layers, ffn, vocab,
  // dim), `size` (wrap size:N), or any setting with a list of values in the order of growing memory.
  std::string setting;
  std::vector<std::string> values;   // canonical, in the order of growing memory
  std::optional<std::string> start;  // predicted largest value that fits
  int check = 1;                     // skipped values to run after all, to score the rule that skipped them

  std::string canonical() const;
};

inline constexpr std::size_t kMostBoundaryValues = 1024;

// Whole numbers from `from` to `to`. Throws fsdp::ConfigError without a place.
std::vector<std::string> boundary_range(std::int64_t from, std::int64_t to, std::int64_t step);
// Canonical text of a value; throws fsdp::ConfigError when `setting` cannot be searched or does not take it.
std::string boundary_value(const std::string& setting, const std::string& text, FileTexts& files);
// Sets one value of an axis: a setting, or one of the names above. Dimensions of the model go on top of the base's
// overrides, `base_set`: "dim=256" and "layers=4" give both.
void apply_axis_value(CaseSettings& c, const std::string& name, const std::string& value, const Overrides& base_set,
                      FileTexts& files);
bool is_model_dimension(const std::string& name);

}  // namespace harness
