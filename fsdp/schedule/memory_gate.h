// MemoryGate: how many unsharded units (or bytes) may be in flight, and which event a new gather has to wait for.
// Counts in the order of the host's calls: a unit holds its place from its gather to its reshard. What was given back
// earlier may still be read by the compute lane: the gate hands out the event behind which the place is really free.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "fsdp/device/device.h"
#include "fsdp/schedule/scheduler.h"

namespace fsdp {

// An event of the device with its number in the verb log.
struct LoggedEvent {
  Event event;
  std::uint64_t number = 0;
};

class MemoryGate {
 public:
  explicit MemoryGate(GateLimit limit);

  // Whether a unit may be gathered now. A unit larger than a byte limit fits when nothing else is in flight.
  bool fits(Bytes unit_bytes) const;

  struct Place {
    int slot = -1;                   // unit limits: which of the slots; else -1
    std::vector<LoggedEvent> after;  // the gather's lane must wait for these first
  };
  // REQUIRES fits(), or the caller oversubscribes on purpose (a gather on demand never waits for a place).
  Place take(Bytes unit_bytes);
  void give_back(int slot, Bytes unit_bytes, LoggedEvent last_reader);

  std::int64_t in_flight() const { return in_flight_; }  // units or bytes

 private:
  struct Freed {
    int slot;
    std::int64_t weight;
    LoggedEvent last_reader;
  };
  std::int64_t weight(Bytes unit_bytes) const { return limit_.kind == GateLimit::Kind::kBytes ? unit_bytes : 1; }

  GateLimit limit_;
  std::int64_t in_flight_ = 0;
  std::int64_t freed_weight_ = 0;  // sum over freed_
  std::deque<Freed> freed_;        // given back, oldest first; taken again in this order
  int next_slot_ = 0;
};

}  // namespace fsdp
