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
#include <utility>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;

std::string text_of(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

sockaddr_in at(const std::string& address, int port) {
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, address.c_str(), &there.sin_addr);
  return there;
}

// 0, or errno.
int wait_for_connection(int fd, const sockaddr_in& to, fsdp::Nanos deadline) {
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

Listener try_to_listen(const std::string& address, int port) {
  Listener l;
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in where = at(address, port);
  socklen_t size = sizeof where;
  auto* any = reinterpret_cast<sockaddr*>(&where);
  const int on = 1;  // the trial before this one has left connections of the port that still time out
  if (!fd.open() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.get(), any, size) != 0 || listen(fd.get(), 1024) != 0 || getsockname(fd.get(), any, &size) != 0)
    return l;
  l.fd = std::move(fd);
  l.port = ntohs(where.sin_port);
  return l;
}

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

Fd try_to_connect(const std::string& address, int port, fsdp::Nanos deadline) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int error = fd.open() ? wait_for_connection(fd.get(), at(address, port), deadline) : errno;
  if (error != 0) {
    errno = error;
    return {};
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
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
