#include "harness/advise/decision_error.h"

#include <array>
#include <cmath>
#include <string>
#include <string_view>

namespace harness {
namespace {

struct Kind {
  std::array<std::string_view, 4> settings;  // those that decide it; empty ones at the end
  double error;
};
// Errors of the size of an effect, as `bench/published_decisions` prints them by kind, in the median; what no pair
// shows has that of step times.
constexpr Kind kKinds[] = {
    {{"wrap"}, 0.03},
    {{"forward_prefetch", "backward_prefetch", "max_inflight", "reduce_scatter_slots"}, 0.03},
    {{"reshard_after_forward"}, 0.03},
    {{"strategy"}, 0.04},
    {{"checkpoint"}, 0.04},
    {{"batch", "seq", "accumulate", "accumulate_sync"}, 0.04},
    {{"layout", "param_dtype", "reduce_dtype", "optimizer"}, 0.06},
};

std::string setting(const CaseRecord& c, std::string_view name) {
  for (const auto& [key, value] : c.settings)
    if (key == name) return value;
  return "";
}

}  // namespace

double decision_error(const CaseRecord& a, const CaseRecord& b) {
  if (!a.predicted || !b.predicted) return 0;
  double squares = 0;
  for (const Kind& kind : kKinds) {
    bool differs = false;
    for (const std::string_view name : kind.settings)
      differs = differs || (!name.empty() && setting(a, name) != setting(b, name));
    if (differs) squares += kind.error * kind.error;
  }
  return std::sqrt(squares);
}

bool is_default_policy(const CaseRecord& c) {
  const auto is = [&](std::string_view name, std::string_view value) {
    const std::string own = setting(c, name);
    return own.empty() || own == value;
  };
  return is("wrap", "block") && is("strategy", "full_shard") &&
         (is("reshard_after_forward", "auto") || is("reshard_after_forward", "true")) && is("backward_prefetch", "pre");
}

}  // namespace harness
