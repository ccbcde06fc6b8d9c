#include "harness/trial/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;
constexpr fsdp::Nanos kRetry = 100 * kMillisecond;

Listener listen_at(in_addr_t where) {
  Listener l;
  l.fd = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(where);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!l.fd.open() || bind(l.fd.get(), any, size) != 0 || listen(l.fd.get(), 1024) != 0 ||
      getsockname(l.fd.get(), any, &size) != 0) {
    throw fsdp::EnvironmentError(std::string("[trial] no listening socket for the ranks to meet: ") +
                                 std::strerror(errno));
  }
  l.port = ntohs(address.sin_port);
  return l;
}

std::string text_of(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

// 0, or errno.
int try_to_connect(int fd, const sockaddr_in& to, fsdp::Nanos deadline) {
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd p{fd, POLLOUT, 0};
  const fsdp::Nanos left = std::max<fsdp::Nanos>(0, deadline - fsdp::steady_now());
  if (poll(&p, 1, static_cast<int>(left / kMillisecond)) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}
}  // namespace

Listener listen_on_loopback() { return listen_at(INADDR_LOOPBACK); }
Listener listen_everywhere() { return listen_at(INADDR_ANY); }

std::string address_of(const std::string& host, const std::string& variable) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr)
    throw fsdp::ConfigError("[launch] the host of rank 0, \"" + host + "\", has no IPv4 address here (" +
                            gai_strerror(error) + "); set " + variable + " to one that every rank can reach");
  const std::string address = text_of(reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr);
  freeaddrinfo(found);
  return address;
}

Fd connect_to(const std::string& address, int port, fsdp::Nanos deadline) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  int error = 0;
  do {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    error = fd.open() ? try_to_connect(fd.get(), to, deadline) : errno;
    if (error == 0) {
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return fd;
    }
    fsdp::sleep_until(std::min(deadline, fsdp::steady_now() + kRetry));
  } while (fsdp::steady_now() < deadline);
  throw fsdp::CommError("[launch] no connection to rank 0 at " + address + ":" + std::to_string(port) + ": " +
                        std::strerror(error) + "; is that address, and every port of it, open to this host?");
}

LocalEnd local_end(int socket) {
  LocalEnd end;
  sockaddr_in mine{};
  socklen_t size = sizeof mine;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &size) != 0) return end;
  end.address = text_of(mine.sin_addr);
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return end;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    if (reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr == mine.sin_addr.s_addr)
      end.interface = i->ifa_name;
  }
  freeifaddrs(all);
  return end;
}

}  // namespace harness
