#include "harness/trial/rank_transports.h"

#include <algorithm>
#include <utility>

#include "fsdp/comm/gloo_transport.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/comm/wire.h"
#include "fsdp/core/errors.h"

namespace harness {
namespace {

std::vector<int> every(int step, int first, int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

}  // namespace

TransportMaker::TransportMaker(const RankJob& job, fsdp::Nanos timeout)
    : job_(job), timeout_(timeout), wire_(job.settings.device == "cuda" ? Wire{} : wire_of(job.settings)) {
  if (job.master_port != 0) {
    rendezvous_ = std::make_unique<fsdp::Rendezvous>(fsdp::Rendezvous::Options{.host = job.master_host,
                                                                               .port = job.master_port,
                                                                               .rank = job.rank,
                                                                               .timeout = timeout_,
                                                                               .listen_fd = job.listen_fd});
  } else {
    memory_ = fsdp::attach_shared_memory(job.shared_memory_fd, job.rank, job.world);
  }
}

std::unique_ptr<fsdp::Transport> TransportMaker::make(const std::string& name, std::vector<int> members, int index,
                                                      int groups) {
  const auto place = std::find(members.begin(), members.end(), job_.rank);
  SHARDSCOPE_CHECK(place != members.end(), "rank " + std::to_string(job_.rank));
  const int group_rank = static_cast<int>(place - members.begin());
  std::unique_ptr<fsdp::Transport> t;
  if (rendezvous_) {
    t = fsdp::make_gloo_transport(*rendezvous_, groups == 1 ? name : name + std::to_string(index), group_rank,
                                  std::move(members), timeout_);
  } else {
    t = fsdp::attach_local_transport(memory_, group_rank, std::move(members), timeout_, channel_ + index);
    channel_ += groups;
  }
  if (!wire_.on) return t;
  return std::make_unique<fsdp::EmulatedWire>(
      std::move(t), fsdp::Wire{wire_.latency_ns, static_cast<std::int64_t>(wire_.bytes_per_second)});
}

std::unique_ptr<fsdp::Transport> TransportMaker::make_groups(const std::string& name, int ranks) {
  const int index = job_.rank / ranks;
  return make(name, every(1, index * ranks, ranks), index, job_.world / ranks);
}

std::unique_ptr<fsdp::Transport> TransportMaker::make_across(const std::string& name, int ranks) {
  const int index = job_.rank % ranks;
  return make(name, every(ranks, index, job_.world / ranks), index, ranks);
}

}  // namespace harness
