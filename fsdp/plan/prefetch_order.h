// An order of units given by the user, for prefetch to follow instead of the recorded one (setting `prefetch_order`).
//
// A file names one unit a line (`#` begins a comment), in the order in which forward runs them, or is a YAML map:
//   forward: [root, model.layers.0, model.layers.1]
//   backward: [root, model.layers.1, model.layers.0]
// Without `backward`, backward follows the reverse, the root first: its backward begins before that of what it
// encloses. Without `forward`, forward follows what it has recorded. Units that are not named are gathered on demand.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "fsdp/plan/unit_plan.h"

namespace fsdp {

struct PrefetchOrder {
  std::vector<UnitId> forward, backward;  // empty: recorded
};

// Throws ConfigError "[FILE:LINE] ..." for a name that no unit of the plan has (the text lists the nearest), one that
// stands twice in a pass, and a file without names.
PrefetchOrder parse_prefetch_order(const std::string& text, const std::string& file_name, const UnitPlan& plan);

}  // namespace fsdp
