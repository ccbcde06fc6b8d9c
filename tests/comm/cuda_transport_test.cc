// NCCL's and the one-GPU collectives over the fake, held to the conformance suite of the transports.
#include <gtest/gtest.h>

#include "fsdp/comm/cuda_local_collectives.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/comm/nccl_collectives.h"
#include "tests/comm/cuda_transports.h"
#include "tests/comm/transport_suite.h"
#include "tests/testing/fake_cuda.h"

namespace fsdp::testing {
namespace {

class NcclRank final : public CudaRank {
 public:
  NcclRank(FakeCuda& fake, const std::shared_ptr<ThreadBoard>& board, int rank, Nanos timeout, bool registered)
      : device_(fake.runtime(rank), {.rank = rank, .timeout = timeout}),
        collectives_(device_, fake.nccl(rank), make_local_transport(board, rank, 3 * timeout),
                     {.registered_buffers = registered, .timeout = timeout}) {}
  CudaDevice& device() override { return device_; }
  Collectives& collectives() override { return collectives_; }
  void abort(const std::string& reason) override { collectives_.abort(reason); }
  void cancel() override { collectives_.cancel(); }

 private:
  CudaDevice device_;
  NcclCollectives collectives_;
};

class LocalRank final : public CudaRank {
 public:
  LocalRank(FakeCuda& fake, const CudaMeetings& meetings, int rank, Nanos timeout)
      : device_(fake.runtime(rank), {.rank = rank, .timeout = timeout}),
        collectives_(device_, meetings, rank, timeout) {}
  CudaDevice& device() override { return device_; }
  Collectives& collectives() override { return collectives_; }
  void abort(const std::string& reason) override { collectives_.abort(reason); }
  void cancel() override { collectives_.cancel(); }

 private:
  CudaDevice device_;
  CudaLocalCollectives collectives_;
};

// What the fake has to say of a run, besides what ranks say. Mismatches are what some cases are about.
std::vector<std::string> with_faults(std::vector<std::string> texts, const FakeCuda& fake) {
  for (const std::string& fault : fake.faults())
    if (fault.find("do not match") == std::string::npos) texts.push_back("fake: " + fault);
  if (!(fake.live() == FakeCuda::Live{})) texts.push_back("fake: something is left");
  return texts;
}

std::vector<std::string> run_nccl(int world, Nanos timeout, const RankMain& rank_main, bool registered) {
  FakeCuda fake(world);
  const auto board = make_thread_board(world);
  return with_faults(
      run_threads(
          world,
          [&](int rank) { return as_transport(std::make_unique<NcclRank>(fake, board, rank, timeout, registered)); },
          rank_main),
      fake);
}

std::vector<std::string> run_local(int world, Nanos timeout, const RankMain& rank_main) {
  FakeCuda fake(world);
  std::vector<std::string> texts;
  {
    CudaMeetings meetings;
    meetings.world = std::make_shared<CudaMeeting>(world);
    texts = run_threads(
        world, [&](int rank) { return as_transport(std::make_unique<LocalRank>(fake, meetings, rank, timeout)); },
        rank_main);
  }
  return with_faults(std::move(texts), fake);
}

}  // namespace

std::vector<World> worlds_under_test() {
  World nccl{"Nccl", [](int w, Nanos t, const RankMain& m) { return run_nccl(w, t, m, false); }};
  nccl.disagreement_timeout = kShortTimeout;
  nccl.knows_arrivals = false;
  nccl.rounds_to_what_travels = true;
  nccl.sees_units = false;
  World registered = nccl;
  registered.name = "NcclRegistered";
  registered.run = [](int w, Nanos t, const RankMain& m) { return run_nccl(w, t, m, true); };
  World local{"CudaThreads", run_local};
  local.knows_arrivals = false;
  return {nccl, registered, local};
}

}  // namespace fsdp::testing
