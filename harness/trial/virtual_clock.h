// VirtualClock: operators become time on the virtual device's compute lane, collectives on their lanes. Plain C++ but
// for who calls it.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/wire.h"
#include "fsdp/device/virtual/virtual_device.h"
#include "harness/cost/contention.h"
#include "harness/cost/cost_model.h"
#include "harness/cost/straggler.h"
#include "harness/sweep/settings.h"
#include "harness/trial/op_observer.h"

namespace harness {

// What the rank that stands for all waits in a collective of these members: the latest of them less its own lateness.
// It is rank 0; the members are rank 0, stride, 2 * stride, ..., `count` of them.
fsdp::Nanos arrival_wait(const ArrivalSkew& skew, int count, int stride);

class VirtualClock final : public OpObserver, public fsdp::Collectives {
 public:
  VirtualClock(const CostModel& model, int world, const std::optional<fsdp::Wire>& wire, const ArrivalSkew& skew,
               fsdp::VirtualDevice& device);

  void begin_step();
  // Of the step so far: what contention added to computation, and what its first collective waited for the slowest
  // rank.
  struct Totals {
    fsdp::Nanos compute_ns = 0, contention_ns = 0, late_ns = 0;
  };
  const Totals& totals() const { return totals_; }
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
  // An operator's.
  struct Cost {
    fsdp::WorkTag tag;
    fsdp::Nanos launch = 0, device = 0;
  };
  void charge(const Cost& cost);
  void enter_unit();
  fsdp::Nanos once_per_step();

  const CostModel& model_;
  const int world_;
  const std::optional<fsdp::Wire> wire_;  // a call takes at least this long, whatever the hardware
  const ArrivalSkew skew_;
  fsdp::VirtualDevice& device_;
  const double slowest_;  // by what share of its computation the slowest rank takes longer than this one
  Contention contention_;
  fsdp::VirtualChannels channels_;
  std::vector<std::array<bool, 4>> entered_;  // by unit and pass, of this micro-batch
  fsdp::Pass pass_ = fsdp::Pass::kNone;
  bool optimizing_ = false;
  std::vector<Cost> held_;
  // Every rank's computation varies from step to step; a step ends with the slowest, for whom this rank waits in the
  // next step's first collective.
  fsdp::Nanos late_ = 0;
  Totals totals_;
};

}  // namespace harness
