// UnitState: the legal life of a unit's full parameters. Knows no time.
//   sharded -> gathering -> ready -> sharded; a unit that never gathers is always ready.
// Idempotent edges: gathering a unit that is gathering or ready is a no-op, so is resharding a sharded
// one.
#pragma once
#include <cstdint>

namespace fsdp {

class UnitState {
 public:
  enum class Phase : std::uint8_t { kSharded, kGathering, kReady };

  explicit UnitState(bool gathers) : gathers_(gathers), phase_(gathers ? Phase::kSharded : Phase::kReady) {}

  Phase phase() const { return phase_; }
  bool needs_gather() const { return phase_ == Phase::kSharded; }
  bool holds_memory() const { return gathers_ && phase_ != Phase::kSharded; }

  void gather();   // sharded -> gathering
  void arrived();  // gathering -> ready: the compute lane has waited for the gather
  void reshard();  // gathering or ready -> sharded

 private:
  bool gathers_;
  Phase phase_;
};

}  // namespace fsdp
