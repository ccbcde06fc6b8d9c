#include "harness/trial/rank_joining.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fsdp/comm/rendezvous.h"
#include "fsdp/core/errors.h"
#include "harness/trial/join_messages.h"
#include "harness/trial/line_socket.h"

namespace harness {

struct JoinedStore::Impl {
  std::unique_ptr<fsdp::Rendezvous> store;
  Fd shared_memory;

  RankEvent meet(const RankMeeting& m) {
    store = std::make_unique<fsdp::Rendezvous>(fsdp::Rendezvous::Options{
        .host = m.host, .port = m.port, .rank = m.rank, .serves = m.serves, .timeout = m.timeout});
    RankEvent e;
    e.kind = RankEvent::Kind::kMet;
    if (!m.value.empty()) store->set(m.key, m.value);
    e.where = m.value.empty() ? store->get(m.key) : m.value;
    return e;
  }

  void prepare(const RankPreparation& p) {
    if (!p.interface.empty()) setenv("GLOO_SOCKET_IFNAME", p.interface.c_str(), 0);  // a user's choice stays
    if (p.shared_memory.empty()) return;
    shared_memory = Fd(open(p.shared_memory.c_str(), O_RDWR | O_CLOEXEC));
    if (!shared_memory.open())
      throw fsdp::EnvironmentError("[launch] the memory that the ranks of this host share cannot be opened (" +
                                   p.shared_memory + ": " + std::strerror(errno) +
                                   "); if they run in containers of their own, use --collectives gloo");
  }
};

JoinedStore::JoinedStore() : impl_(std::make_unique<Impl>()) {}
JoinedStore::~JoinedStore() = default;

RankJob JoinedStore::receive_job(RankLink& link) {
  while (true) {
    const std::string line = link.read_first_line();
    if (const auto meeting = meeting_from_json(line)) {
      link.send(impl_->meet(*meeting));
    } else if (const auto preparation = preparation_from_json(line)) {
      impl_->prepare(*preparation);
    } else {
      RankJob job = rank_job_from_json(line);
      if (impl_->shared_memory.open()) job.shared_memory_fd = impl_->shared_memory.get();
      return job;
    }
  }
}

}  // namespace harness
