// VirtualClock: operators become time on the virtual device's compute lane, collectives on their lanes. Plain C++ but
// for who calls it.
#pragma once
#include <utility>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/device/virtual/virtual_device.h"
#include "harness/cost/contention.h"
#include "harness/cost/cost_model.h"
#include "harness/trial/op_observer.h"

namespace harness {

// Emulated wire of a case: a call takes at least this long, whatever the hardware.
struct VirtualWire {
  bool on = false;
  fsdp::Nanos latency = 0;
  std::int64_t bytes_per_second = 0;
};

// By how much each named rank comes later to every collective than the others do.
using ArrivalSkew = std::vector<std::pair<int, fsdp::Nanos>>;
// What the rank that stands for all waits in a collective of these members: the latest of them less its own lateness.
// It is rank 0; the members are rank 0, stride, 2 * stride, ..., `count` of them.
fsdp::Nanos arrival_wait(const ArrivalSkew& skew, int count, int stride);

class VirtualClock final : public OpObserver, public fsdp::Collectives {
 public:
  VirtualClock(const CostModel& model, int world, const VirtualWire& wire, const ArrivalSkew& skew,
               fsdp::VirtualDevice& device);

  void begin_step();
  void ran(const OpCall& call) override;

  int rank() const override { return 0; }
  int world() const override { return world_; }
  void enqueue(fsdp::Lane lane, const fsdp::CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override { return {value}; }
  void* allocate(fsdp::Bytes) override { return nullptr; }
  void release(void*) noexcept override {}

 private:
  fsdp::Nanos wait_for_last(fsdp::Communicator c) const;
  GroupShape shape_of(fsdp::Communicator c) const;
  fsdp::Nanos once_per_pass();

  const CostModel& model_;
  const int world_;
  const VirtualWire wire_;
  const ArrivalSkew skew_;
  fsdp::VirtualDevice& device_;
  Contention contention_;
  fsdp::VirtualChannels channels_;
  std::vector<std::array<bool, 4>> entered_;  // by unit and pass, of this step
  bool optimizing_ = false;
};

}  // namespace harness
