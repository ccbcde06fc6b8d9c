#include "fsdp/schedule/memory_gate.h"

#include "fsdp/core/errors.h"

namespace fsdp {

MemoryGate::MemoryGate(GateLimit limit) : limit_(limit) {
  if (limit.kind != GateLimit::Kind::kNone && limit.value < 1)
    throw ConfigError("[max_inflight] " + std::to_string(limit.value) +
                      " lets nothing be gathered; give at least 1 unit or byte");
}

bool MemoryGate::fits(Bytes unit_bytes) const {
  if (limit_.kind == GateLimit::Kind::kNone) return true;
  return in_flight_ == 0 || in_flight_ + weight(unit_bytes) <= limit_.value;
}

MemoryGate::Place MemoryGate::take(Bytes unit_bytes) {
  Place place;
  if (limit_.kind == GateLimit::Kind::kNone) return place;
  const std::int64_t want = weight(unit_bytes);
  while (!freed_.empty() && in_flight_ + freed_weight_ + want > limit_.value) {
    const Freed& f = freed_.front();
    place.slot = f.slot;
    place.after.push_back(f.last_reader);
    freed_weight_ -= f.weight;
    freed_.pop_front();
  }
  if (limit_.kind == GateLimit::Kind::kUnits && place.slot < 0) place.slot = next_slot_++;
  if (limit_.kind == GateLimit::Kind::kBytes) place.slot = -1;
  in_flight_ += want;
  return place;
}

void MemoryGate::give_back(int slot, Bytes unit_bytes, LoggedEvent last_reader) {
  if (limit_.kind == GateLimit::Kind::kNone) return;
  const std::int64_t w = weight(unit_bytes);
  in_flight_ -= w;
  freed_weight_ += w;
  freed_.push_back({slot, w, last_reader});
}

}  // namespace fsdp
