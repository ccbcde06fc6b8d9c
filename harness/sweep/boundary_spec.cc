#include "harness/sweep/boundary_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "fsdp/core/errors.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/spec.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

constexpr std::array<const char*, 4> kDimensions = {"layers", "dim", "ffn", "vocab"};

std::string whole(const std::string& setting, const std::string& text) {
  const auto n = whole_number(text);
  if (!n || *n < 1) throw fsdp::ConfigError(fmt::format("{} takes whole numbers from 1 on, not \"{}\"", setting, text));
  return std::to_string(*n);
}

}  // namespace

bool is_model_dimension(const std::string& name) {
  return std::find(kDimensions.begin(), kDimensions.end(), name) != kDimensions.end();
}

std::string BoundarySpec::canonical() const {
  return fmt::format("boundary is {} over [{}], check {}", setting, fmt::join(values, "; "), check);
}

std::vector<std::string> boundary_range(std::int64_t from, std::int64_t to, std::int64_t step) {
  if (from > to) throw fsdp::ConfigError(fmt::format("from {} is above to {}; give the smaller one first", from, to));
  if (step < 1) throw fsdp::ConfigError(fmt::format("step {} is below 1; leave it out or give a larger one", step));
  const std::int64_t n = (to - from) / step + 1;
  if (n > static_cast<std::int64_t>(kMostBoundaryValues))
    throw fsdp::ConfigError(
        fmt::format("from {} to {} are {} values, more than {}; give a step of {} or a list of values", from, to, n,
                    kMostBoundaryValues, (to - from) / static_cast<std::int64_t>(kMostBoundaryValues - 1) + 1));
  std::vector<std::string> values;
  for (std::int64_t v = from; v <= to; v += step) values.push_back(std::to_string(v));
  return values;
}

std::string boundary_value(const std::string& setting, const std::string& text, FileTexts& files) {
  if (setting == "size" || is_model_dimension(setting)) return whole(setting, text);
  CaseSettings c;
  apply_setting(c, setting, text, files);
  return setting_text(c, setting);
}

void apply_axis_value(CaseSettings& c, const std::string& name, const std::string& value, const Overrides& base_set,
                      FileTexts& files) {
  if (name == "size") {
    apply_setting(c, "wrap", "size:" + value, files);
  } else if (is_model_dimension(name)) {
    c.set = merged(c.set.empty() ? base_set : c.set, {{name, value}});
  } else {
    apply_setting(c, name, value, files);
    if (name == "set") c.set = merged(base_set, c.set);
  }
}

}  // namespace harness
