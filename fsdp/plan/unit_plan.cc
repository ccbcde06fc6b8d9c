#include "fsdp/plan/unit_plan.h"

namespace fsdp {

bool reshards_after_forward(const UnitSpec& unit) {
  const UnitOptions& o = unit.options;
  if (o.strategy == Strategy::kNoShard) return false;  // there is no sharded form to go back to
  if (o.reshard_group > 1) return true;                // the full form goes, a smaller shard stays
  if (o.reshard_after_forward) return *o.reshard_after_forward;
  const bool by_strategy = o.strategy == Strategy::kFullShard || o.strategy == Strategy::kHybridShard;
  return by_strategy && !unit.is_root;
}

}  // namespace fsdp
