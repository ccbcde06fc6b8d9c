// The little of TCP over IPv4 that ranks need to meet.
#pragma once
#include <string>

#include "harness/trial/line_socket.h"

namespace harness {

struct Listener {
  Fd fd;
  int port = 0;  // the system's choice; nobody else can take it
};
// At the loopback address, or at every address of the host. Throws fsdp::EnvironmentError.
Listener listen_on_loopback();
Listener listen_everywhere();

// "10.0.0.2" of a host's name. Throws fsdp::ConfigError naming `variable`, the remedy.
std::string address_of(const std::string& host, const std::string& variable);
// Throws fsdp::CommError when there is no connection until the deadline (steady clock).
Fd connect_to(const std::string& address, int port, fsdp::Nanos deadline);

struct LocalEnd {
  std::string address, interface;  // of this host, by which a connection goes; empty: unknown
};
LocalEnd local_end(int socket);

}  // namespace harness
