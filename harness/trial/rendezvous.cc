#include "harness/trial/rendezvous.h"

#include <fcntl.h>

#include <utility>

#include "fsdp/comm/local_transport.h"
#include "harness/trial/network.h"
#include "harness/trial/rank_processes.h"

namespace harness {
namespace {

// Room for everything that a rank shows its peers: shards, gathered units, reduce inputs, gradients. Address space, not
// memory: pages come into being when first written, so it is generous.
fsdp::Bytes arena_bytes(const CaseSettings& settings) {
  constexpr fsdp::Bytes kFloor = fsdp::Bytes{1} << 30;
  constexpr fsdp::Bytes kCopies = 16;
  return kFloor + kCopies * fsdp::size_of(fsdp::Dtype::kFloat32) * describe_model(model_of(settings)).numel();
}
}  // namespace

Rendezvous make_rendezvous(const CaseSettings& settings) {
  Rendezvous r;
  if (settings.collectives == CollectivesKind::kGloo || settings.runtime != Runtime::kShardscope) {
    r.host = kLoopback;
  } else {
    r.shared_memory = Fd(fsdp::create_shared_memory(settings.world, arena_bytes(settings)));
    fcntl(r.shared_memory.get(), F_SETFD, FD_CLOEXEC);  // ranks of trials that run beside this one must not have it
  }
  return r;
}

RankJob rank_job(const CaseSettings& settings, const Rendezvous& r, int rank) {
  RankJob job;
  job.settings = settings;
  job.rank = rank;
  job.world = settings.world;
  job.shared_memory_fd = r.shared_memory.open() ? kSharedMemoryFd : -1;
  job.master_host = r.host;
  return job;
}

}  // namespace harness
