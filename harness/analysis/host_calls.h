// What the host's calls tell beyond when work was launched: launches that no device work is known of, calls that block.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "harness/analysis/device_trace.h"

namespace harness {

// A call that returns late: a synchronization, or any that took a millisecond.
struct BlockingCall {
  fsdp::Nanos begin = 0, end = 0;
  std::uint32_t name = kNoName;  // an index that the owner keeps
};

struct HostCalls {
  std::map<std::uint32_t, std::vector<fsdp::Nanos>> unmatched;  // by thread: begins of launch calls without a kernel
  std::map<std::uint32_t, std::vector<BlockingCall>> blocking;  // by thread, in time order, disjoint
  const std::vector<fsdp::Nanos>* unmatched_on(std::uint32_t thread) const;
};

// Time in which the host was blocked in calls of one name, between the launches of two all-gathers of one thread.
struct HostSync {
  std::uint32_t name = kNoName;
  std::int64_t calls = 0;
  fsdp::Nanos exposed_ns = 0;  // an all-gather was exposed then
  fsdp::Nanos gap_ns = 0;      // nothing ran then, and the next work had not been issued
};

// Finds the calls that keep the host from launching the next all-gather. One pass in time order over one device.
class BlockedHost {
 public:
  explicit BlockedHost(const HostCalls* calls) : calls_(calls) {}  // null: nothing is known
  void gather(const DeviceOp& op);                                 // an all-gather was launched
  // [begin, end) passed exposed to a gather, or (exposed == false) with nothing running, on whose launching thread the
  // calls count that begin at `since` or later.
  void charge(std::uint32_t thread, fsdp::Nanos since, fsdp::Nanos begin, fsdp::Nanos end, bool exposed);
  std::vector<HostSync> finish() const;  // the longest first

 private:
  struct Charge {
    fsdp::Nanos exposed = 0, gap = 0;
  };
  struct Thread {
    fsdp::Nanos first_gather = kNoTime, last_gather = kNoTime;
    std::map<std::size_t, Charge> charges;  // by call
  };
  const HostCalls* calls_;
  std::map<std::uint32_t, Thread> threads_;
};

}  // namespace harness
