// HostCollectives: puts a transport's blocking calls on the comm lanes of a HostDevice.
// When a call fails, the rank's other transports are told, so that no peer waits for this rank in vain.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/transport.h"
#include "fsdp/core/errors.h"
#include "fsdp/device/host/host_device.h"

namespace fsdp {

// One per communicator that is called.
struct HostTransports {
  std::unique_ptr<Transport> world;  // of all ranks
  std::vector<std::pair<Communicator, std::unique_ptr<Transport>>> others;
};

// "world", "shard.4", "reduce_scatter", "reduce_scatter.4", "replica.4"
std::string name_of(Communicator c);

// Returns the entry of `entries` whose key(entry) is the communicator `c`. A missing entry fails a check.
template <class Entries, class Key>
auto& entry_of(Entries& entries, Communicator c, Key key) {
  const auto at = std::ranges::find(entries, c, key);
  SHARDSCOPE_CHECK(at != entries.end(), "communicator " + name_of(c));
  return *at;
}

// Returns the bytes of the full buffer of a call, the number that WorkTag and Span carry.
Bytes full_bytes(const CollectiveCall& call, int group_size);
WorkTag tag_of(const CollectiveCall& call, int group_size);

class HostCollectives final : public Collectives {
 public:
  // `device` outlives this. Throws ConfigError if the transport of all ranks is missing.
  HostCollectives(HostDevice& device, HostTransports transports);
  // If lanes are still at work, or an exception passes: tells the peers, drops what has not started.
  ~HostCollectives() override;
  HostCollectives(const HostCollectives&) = delete;
  HostCollectives& operator=(const HostCollectives&) = delete;

  int rank() const override { return everybody().rank(); }
  int world() const override { return everybody().world(); }

  // All calls of one communicator go to lanes of one thread (HostDevice::channel_of), and there is a transport for it;
  // a breach is a failed check.
  void enqueue(Lane lane, const CollectiveCall& call) override;
  // Waits for the lanes to be idle first. Groups of consecutive ranks meet too, so that a rank that is in a collective
  // of one instead is named.
  std::vector<std::uint64_t> exchange(std::uint64_t value) override;

  void* allocate(Bytes n) override { return everybody().allocate(n); }
  void release(void* p) noexcept override { everybody().release(p); }

  // Ends the peers' waits for this rank on every communicator. Thread-safe.
  void abort(const std::string& reason) noexcept;

 private:
  struct Member {
    Communicator communicator;
    std::unique_ptr<Transport> transport;
    int channel = -1;  // which thread serves it, from its first call on
  };
  Nanos run(Transport& transport, const CollectiveCall& call);
  Transport& everybody() const { return *members_.front().transport; }

  HostDevice& device_;
  std::vector<Member> members_;  // of all ranks, then the others as given
  const int exceptions_at_birth_;
};

}  // namespace fsdp
