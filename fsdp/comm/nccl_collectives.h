// NcclCollectives: collectives of the CUDA world over raw NCCL communicators, made from one unique id and split into
// the groups of the plan. Host-side agreement, the unique id and the search for who is missing go over a host transport
// of all ranks, which sees what NCCL cannot: a peer that gave up, and what the others are in.
//
// Numbers: NCCL sums in an order of its own and rounds to the type that travels; a scale of 1 / ranks is NCCL's
// average, any other one a kernel behind the call, as are conversion and accumulation.
#pragma once
#include <array>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/local_board.h"
#include "fsdp/comm/nccl_communicator.h"
#include "fsdp/comm/transport.h"
#include "fsdp/device/cuda/cuda_buffers.h"
#include "fsdp/device/cuda/cuda_device.h"
#include "fsdp/device/cuda/lane_memory.h"

namespace fsdp {

struct NcclOptions {
  std::vector<Communicator> communicators;  // besides that of all ranks
  int min_ctas = 0, max_ctas = 0;           // 0: NCCL's choice
  bool registered_buffers = false;          // flat buffers from ncclMemAlloc, registered with the communicators
  Nanos timeout = 60'000'000'000;
};

// Throws EnvironmentError unless the NCCL at run time is the one of the build or newer. Returns "2.28.9".
std::string check_nccl_version(NcclLibrary& nccl);

class NcclCollectives final : public Collectives, private CudaDevice::Watcher {
 public:
  // `device` and `nccl` outlive this. `control`: of all ranks, with a timeout longer than that of options and device.
  // All ranks construct theirs at the same time. Throws CommError, TimeoutError, EnvironmentError.
  NcclCollectives(CudaDevice& device, NcclLibrary& nccl, std::unique_ptr<Transport> control,
                  const NcclOptions& options);
  // If lanes are still at work, or an exception passes: aborts, and tells the peers.
  ~NcclCollectives() override;
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  int rank() const override { return control_->rank(); }
  int world() const override { return control_->world(); }
  void enqueue(Lane lane, const CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override;

  // Flat buffers. Their first and last user is the compute lane.
  void* allocate(Bytes n) override;
  void release(void* p) noexcept override;
  // Full parameters: `writer` fills them first, the compute lane reads them last.
  void* take(Bytes n, Lane writer) { return full_->take(n, writer); }
  void give(void* p) noexcept { full_->give(p); }

  // After a failure: drops what is in flight and waits until the lanes are idle. Nothing is issued any more.
  void cancel() noexcept;
  // Ends the peers' waits for this rank. Thread-safe.
  void abort(const std::string& reason) noexcept { control_->abort(reason); }

 private:
  struct InFlight {
    Event done;
    CallRecord record;
  };
  struct Member {
    Communicator communicator;
    std::unique_ptr<NcclCommunicator> comm;
    std::uint64_t calls = 0;
  };
  class Registered;

  std::unique_ptr<NcclCommunicator> make_world();
  std::unique_ptr<NcclCommunicator> split(Communicator c);
  NcclCommunicator::Setup setup(const std::string& role) const;
  Member& member(Communicator c);
  LaneScratch& scratch(Lane lane) { return *scratch_[static_cast<std::size_t>(lane)]; }
  void run(NcclCommunicator& comm, const CollectiveCall& call, Lane lane, CudaRuntime::Stream stream);
  void reduce(NcclCommunicator& comm, const CollectiveCall& call, Lane lane, CudaRuntime::Stream stream);
  void finish(const CollectiveCall& call, const void* from, float scale, CudaRuntime::Stream stream);

  void check() override;
  [[noreturn]] void timed_out(const WorkTag& awaited) override;
  // What every rank is in; throws CommError naming both sides if that differs.
  void compare(const CallRecord& mine);

  CudaDevice& device_;
  NcclLibrary& nccl_;
  const std::unique_ptr<Transport> control_;
  const NcclOptions options_;
  const int exceptions_at_birth_;
  std::deque<Member> members_;  // of all ranks last, after what is split from it
  std::uint64_t exchanges_ = 0;
  std::deque<InFlight> in_flight_;                                // the last ones issued
  std::array<std::unique_ptr<LaneScratch>, kLaneCount> scratch_;  // of comm lanes
  LaneMemory compute_memory_;
  std::unique_ptr<CudaMemorySource> source_;
  std::unique_ptr<CudaBuffers> full_;  // full parameters
  std::unique_ptr<CudaBuffers> flat_;  // flat buffers, where they are registered
};

}  // namespace fsdp
