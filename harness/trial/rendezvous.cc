#include "harness/trial/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw fsdp::EnvironmentError("[trial] " + what + ": " + std::strerror(errno));
}

// The system picks the port; the socket listens from here on, so nobody else can take it.
void listen_on_loopback(Rendezvous& r) {
  r.listener = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!r.listener.open() || bind(r.listener.get(), any, size) != 0 || listen(r.listener.get(), 128) != 0 ||
      getsockname(r.listener.get(), any, &size) != 0) {
    fail("no listening socket on the loopback address for the ranks to meet");
  }
  r.port = ntohs(address.sin_port);
}
}  // namespace

Rendezvous make_rendezvous(const CaseSettings& settings) {
  Rendezvous r;
  if (settings.collectives == "gloo") {
    listen_on_loopback(r);
  } else if (settings.world > 1) {
    r.shared_memory = Fd(memfd_create("shardscope", MFD_CLOEXEC));
    if (!r.shared_memory.open()) fail("no shared memory for the ranks");
  }
  return r;
}

RankJob rank_job(const CaseSettings& settings, const Rendezvous& r, int rank) {
  RankJob job;
  job.settings = settings;
  job.rank = rank;
  job.world = settings.world;
  job.shared_memory_fd = r.shared_memory.open() ? kSharedMemoryFd : -1;
  job.listen_fd = r.port != 0 && rank == 0 ? kListenFd : -1;
  job.master_host = r.port != 0 ? "127.0.0.1" : "";
  job.master_port = r.port;
  return job;
}

}  // namespace harness
