// HostCollectives: puts a transport's blocking calls on the comm lanes of a HostDevice.
// When a call fails, the rank's other transports are told, so that no peer waits for this rank in vain.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/transport.h"
#include "fsdp/device/host/host_device.h"

namespace fsdp {

// One per communicator. Without `reduce_scatter` its calls go to `shard`; without `world` the shard group is the world;
// without `replica` there is one shard group.
struct HostTransports {
  std::unique_ptr<Transport> shard;
  std::unique_ptr<Transport> reduce_scatter;
  std::unique_ptr<Transport> replica;
  std::unique_ptr<Transport> world;
  std::unique_ptr<Transport> regather;  // only where a plan keeps copies over smaller groups
};

// Bytes of the full buffer of a call: what WorkTag and Span carry.
Bytes full_bytes(const CollectiveCall& call, int group_size);
WorkTag tag_of(const CollectiveCall& call, int group_size);

class HostCollectives final : public Collectives {
 public:
  // `device` outlives this. Throws ConfigError if the transports do not fit together: `shard` is missing, `replica`
  // without `world`, a device with a reduce-scatter thread of its own without a transport for it.
  HostCollectives(HostDevice& device, HostTransports transports);
  // If lanes are still at work, or an exception passes: tells the peers, drops what has not started.
  ~HostCollectives() override;
  HostCollectives(const HostCollectives&) = delete;
  HostCollectives& operator=(const HostCollectives&) = delete;

  int rank() const override;
  int world() const override;
  int group_size(Communicator c) const override;

  // All calls of one communicator go to lanes of one thread (HostDevice::channel_of); a breach is a failed check.
  void enqueue(Lane lane, const CollectiveCall& call) override;
  // Waits for the lanes to be idle first. With replicas the shard group meets too, so that a rank that is in a
  // collective of it instead is named.
  std::vector<std::uint64_t> exchange(std::uint64_t value) override;

  void* allocate(Bytes n) override { return transports_.shard->allocate(n); }
  void release(void* p) noexcept override { transports_.shard->release(p); }

  // Ends the peers' waits for this rank on every communicator. Thread-safe.
  void abort(const std::string& reason) noexcept;

 private:
  Transport* transport_of(Communicator c) const;
  Nanos run(Transport& transport, const CollectiveCall& call);
  Transport& world_transport() const { return transports_.world ? *transports_.world : *transports_.shard; }

  HostDevice& device_;
  HostTransports transports_;
  const int exceptions_at_birth_;
  std::array<int, 5> channel_of_{-1, -1, -1, -1, -1};  // which thread serves each communicator, from its first call on
};

}  // namespace fsdp
