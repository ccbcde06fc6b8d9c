// NCCL and the one-GPU collectives on real GPUs, held to the conformance suite. Skipped where there are too few.
#include <gtest/gtest.h>

#include "fsdp/comm/cuda_local_collectives.h"
#include "fsdp/comm/linked_nccl.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/comm/nccl_collectives.h"
#include "fsdp/device/cuda/linked_runtime.h"
#include "tests/comm/cuda_transports.h"
#include "tests/comm/transport_suite.h"

namespace fsdp::testing {
namespace {

struct Gpu {
  explicit Gpu(int gpu, int rank, Nanos timeout)
      : runtime(make_linked_runtime(gpu)),
        device(*runtime, {.rank = rank, .timeout = timeout, .compute = current_stream(gpu)}) {}
  std::unique_ptr<CudaRuntime> runtime;
  CudaDevice device;
};

class NcclRank final : public CudaRank {
 public:
  NcclRank(const std::shared_ptr<ThreadBoard>& board, int rank, Nanos timeout, bool registered)
      : gpu_(rank, rank, timeout),
        nccl_(make_linked_nccl()),
        collectives_(gpu_.device, *nccl_, make_local_transport(board, rank, 3 * timeout),
                     {.registered_buffers = registered, .timeout = timeout}) {}
  CudaDevice& device() override { return gpu_.device; }
  Collectives& collectives() override { return collectives_; }
  void abort(const std::string& reason) override { collectives_.abort(reason); }
  void cancel() override { collectives_.cancel(); }

 private:
  Gpu gpu_;
  std::unique_ptr<NcclLibrary> nccl_;
  NcclCollectives collectives_;
};

class LocalRank final : public CudaRank {
 public:
  LocalRank(const CudaMeetings& meetings, int rank, Nanos timeout)
      : gpu_(0, rank, timeout), collectives_(gpu_.device, meetings, rank, timeout) {}
  CudaDevice& device() override { return gpu_.device; }
  Collectives& collectives() override { return collectives_; }
  void abort(const std::string& reason) override { collectives_.abort(reason); }
  void cancel() override { collectives_.cancel(); }

 private:
  Gpu gpu_;
  CudaLocalCollectives collectives_;
};

std::string too_few(int wanted) {
  if (const std::string why = why_no_gpu(); !why.empty()) return why;
  return gpu_count() >= wanted ? "" : std::to_string(gpu_count()) + " GPUs here, " + std::to_string(wanted) + " ranks";
}

World nccl(bool registered) {
  World w{registered ? "NcclRegistered" : "Nccl", [registered](int world, Nanos timeout, const RankMain& rank_main) {
            const auto board = make_thread_board(world);
            return run_threads(
                world,
                [&](int rank) { return as_transport(std::make_unique<NcclRank>(board, rank, timeout, registered)); },
                rank_main);
          }};
  w.disagreement_timeout = kShortTimeout;
  w.knows_arrivals = false, w.rounds_to_what_travels = true, w.sees_units = false, w.any_order = true;
  w.why_not = too_few;
  return w;
}

}  // namespace

std::vector<World> worlds_under_test() {
  World local{"CudaThreads", [](int world, Nanos timeout, const RankMain& rank_main) {
                CudaMeetings meetings;
                meetings.world = std::make_shared<CudaMeeting>(world);
                return run_threads(
                    world, [&](int rank) { return as_transport(std::make_unique<LocalRank>(meetings, rank, timeout)); },
                    rank_main);
              }};
  local.knows_arrivals = false;
  local.why_not = [](int) { return too_few(1); };
  return {nccl(false), nccl(true), local};
}

}  // namespace fsdp::testing
