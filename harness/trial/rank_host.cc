// The host world's backend: threads as lanes, shared memory or Gloo as transport.
#include "fsdp/comm/host_collectives.h"
#include "fsdp/device/host/host_device.h"
#include "fsdp/plan/shard_layout.h"
#include "fsdp/schedule/communicators.h"
#include "harness/trial/rank_backend.h"
#include "harness/trial/rank_transports.h"

namespace harness {
namespace {

fsdp::HostTransports make_transports(const RankJob& job, const fsdp::UnitPlan& plan, TransportMaker& maker) {
  fsdp::HostTransports t;
  t.world = maker.make(fsdp::name_of(fsdp::Communicator()), {});
  for (const fsdp::Communicator c :
       fsdp::communicators_of(fsdp::groups_of(plan, job.world), own_reduce_scatter(job.settings)))
    t.others.emplace_back(c, maker.make(fsdp::name_of(c), c));
  return t;
}

fsdp::HostDevice::Options device_options(const RankJob& job, fsdp::RangeSink* ranges) {
  return {job.rank, job.settings.step_timeout + kDeviceSlack, !own_reduce_scatter(job.settings), ranges};
}

class HostBackend final : public RankBackend {
 public:
  HostBackend(const RankJob& job, const fsdp::UnitPlan& plan, fsdp::RangeSink* ranges, RankSurroundings around)
      : gloo_(around.rendezvous != nullptr),
        device_(device_options(job, ranges)),
        maker_(job, job.settings.step_timeout, around),
        collectives_(device_, make_transports(job, plan, maker_)) {}
  fsdp::Device& device() override { return device_; }
  fsdp::Collectives& collectives() override { return collectives_; }
  void complete(RankResult& result) override { result.environment["collectives"] = gloo_ ? "gloo" : "local"; }
  void cancel() noexcept override { device_.cancel(); }
  void abort(const std::string& reason) noexcept override { collectives_.abort(reason); }

 private:
  const bool gloo_;
  fsdp::HostDevice device_;
  TransportMaker maker_;
  fsdp::HostCollectives collectives_;
};

}  // namespace

std::unique_ptr<RankBackend> make_host_backend(const RankJob& job, const fsdp::UnitPlan& plan, fsdp::RangeSink* ranges,
                                               RankSurroundings around) {
  return std::make_unique<HostBackend>(job, plan, ranges, around);
}

}  // namespace harness
