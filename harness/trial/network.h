// The little of TCP over IPv4 that ranks need to meet.
#pragma once
#include <string>

#include "harness/trial/line_socket.h"

namespace harness {

struct Listener {
  Fd fd;
  int port = 0;  // the system's choice; nobody else can take it
};
inline constexpr const char* kLoopback = "127.0.0.1";
inline constexpr const char* kEveryAddress = "0.0.0.0";
// At an address of this host; port 0: any. No `open` Fd: errno says why; EADDRNOTAVAIL when the host has no such
// address.
Listener try_to_listen(const std::string& address, int port);

// "10.0.0.2" of a host's name. Throws fsdp::ConfigError naming `variable`, the remedy.
std::string address_of(const std::string& host, const std::string& variable);
// One attempt: no `open` Fd when there is no connection until the deadline (steady clock); errno says why.
Fd try_to_connect(const std::string& address, int port, fsdp::Nanos deadline);

struct LocalEnd {
  std::string address, interface;  // of this host, by which a connection goes; empty: unknown
};
LocalEnd local_end(int socket);

}  // namespace harness
