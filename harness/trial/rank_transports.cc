#include "harness/trial/rank_transports.h"

#include <utility>

#include "fsdp/comm/gloo_transport.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/comm/wire.h"
#include "fsdp/core/errors.h"

namespace harness {

TransportMaker::TransportMaker(const RankJob& job, fsdp::Nanos timeout, RankSurroundings around)
    : job_(job),
      timeout_(timeout),
      wire_(job.settings.device == DeviceKind::kCuda ? std::nullopt : job.settings.wire),
      around_(around) {
  if (around_.rendezvous == nullptr) memory_ = fsdp::attach_shared_memory(job.shared_memory_fd, job.rank, job.world);
}

std::unique_ptr<fsdp::Transport> TransportMaker::make(const std::string& name, fsdp::Communicator c) {
  std::vector<int> members = c.members(job_.rank, job_.world);
  const int group_rank = c.place_of(job_.rank, job_.world), set = c.set_of(job_.rank, job_.world);
  const int sets = job_.world / c.size(job_.world);
  const std::string full_name = sets == 1 ? name : name + "/" + std::to_string(set);
  const int communicator = around_.progress.add_communicator(full_name, members);
  std::unique_ptr<fsdp::Transport> t;
  if (around_.rendezvous != nullptr) {
    t = fsdp::make_gloo_transport(*around_.rendezvous, full_name, group_rank, std::move(members), timeout_);
  } else {
    t = fsdp::attach_local_transport(memory_, group_rank, std::move(members), timeout_, channel_ + set);
    channel_ += sets;
  }
  around_.progress.leave(communicator);
  t = std::make_unique<WatchedTransport>(std::move(t), around_.progress, communicator);
  if (!wire_) return t;
  return std::make_unique<fsdp::EmulatedWire>(std::move(t), *wire_);
}

}  // namespace harness
