#include "harness/trial/rendezvous.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "fsdp/comm/local_transport.h"
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
  if (settings.collectives == "gloo") {
    listen_on_loopback(r);
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
  job.listen_fd = r.port != 0 && rank == 0 ? kListenFd : -1;
  job.master_host = r.port != 0 ? "127.0.0.1" : "";
  job.master_port = r.port;
  return job;
}

}  // namespace harness
