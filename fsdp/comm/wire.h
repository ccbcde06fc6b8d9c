// The emulated wire: what a call costs on a network of a given latency and bandwidth, and a transport that takes that
// long.
#pragma once
#include <cstdint>
#include <memory>

#include "fsdp/comm/transport.h"
#include "fsdp/core/wire.h"

namespace fsdp {

// Time on the wire, from the arrival of the last rank: latency + bytes / bandwidth, rounded down to a nanosecond. Bytes
// each rank sends, in the travelling dtype (in_dtype), with n = the full buffer and W = world:
//   all_gather, reduce_scatter  (W-1)/W n      all_reduce  2 (W-1)/W n      broadcast  n      barrier  0
// With one rank nothing travels: 0.
Nanos wire_time(const CollectiveCall& call, int world, const Wire& wire);

// Runs the inner transport, then holds the calling thread, not a core, until the call's time on the wire has passed
// since the last rank arrived (as the inner transport knows it; else since its own arrival). exchange() is not slowed
// down.
class EmulatedWire final : public Transport {
 public:
  EmulatedWire(std::unique_ptr<Transport> inner, const Wire& wire);

  int rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  Nanos run(const CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override { return inner_->exchange(value); }
  void* allocate(Bytes n) override { return inner_->allocate(n); }
  void release(void* p) noexcept override { inner_->release(p); }
  void check() override { inner_->check(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  const std::unique_ptr<Transport> inner_;
  const Wire wire_;
};

}  // namespace fsdp
