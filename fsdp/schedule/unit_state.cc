#include "fsdp/schedule/unit_state.h"

#include "fsdp/core/errors.h"

namespace fsdp {

void UnitState::gather() {
  SHARDSCOPE_CHECK(phase_ == Phase::kSharded, "gather of a unit that holds its full parameters");
  phase_ = Phase::kGathering;
}

void UnitState::arrived() {
  SHARDSCOPE_CHECK(phase_ == Phase::kGathering, "arrival of a gather that was not issued");
  phase_ = Phase::kReady;
}

void UnitState::reshard() {
  SHARDSCOPE_CHECK(gathers_ && phase_ != Phase::kSharded, "reshard of a unit without full parameters of its own");
  phase_ = Phase::kSharded;
}

}  // namespace fsdp
