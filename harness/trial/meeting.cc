#include "harness/trial/meeting.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "harness/trial/handshake.h"
#include "harness/trial/run_secret.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kSecond = 1'000'000'000, kRetry = kSecond / 20;
constexpr fsdp::Nanos kConnecting = 2 * kSecond, kShaking = 2 * kSecond;  // of one attempt
constexpr int kDerivedPorts = 8;                                          // one of them is free
constexpr int kFirstPort = 20'000, kPorts = 12'000;  // below what systems give to outgoing connections

// A loopback address of rank 0's own name (127.0.1.1 on Debian) is not the one that other hosts find.
bool found_as_another(const Meeting& meeting, const RankPlace& place) {
  return is_loopback(meeting.address) && !on_one_host(place);
}
}  // namespace

Meeting meeting_of(const RankPlace& place, const std::string& secret) {
  Meeting m;
  m.address = place.one_host ? kLoopback : address_of(place.master_addr, "MASTER_ADDR");
  m.run = place.run + "/" + std::to_string(place.master_port) + "/" + place.attempt;
  if (!place.store_is_served) {
    m.ports = {place.master_port};
    return m;
  }
  for (int i = 0; i < kDerivedPorts; ++i) {
    const std::string hash = keyed_hash(secret, "port " + std::to_string(i) + " of " + m.run);
    m.ports.push_back(kFirstPort + static_cast<int>(std::stoul(hash.substr(0, 8), nullptr, 16) % kPorts));
  }
  return m;
}

Listener listen_at(const Meeting& meeting, const RankPlace& place) {
  int error = 0;
  for (const int port : meeting.ports) {
    Listener l;
    if (!found_as_another(meeting, place)) l = try_to_listen(meeting.address, port);
    // Behind a translated address the host does not have the one by which it is reached.
    if (!l.fd.open() && (found_as_another(meeting, place) || errno == EADDRNOTAVAIL))
      l = try_to_listen(kEveryAddress, port);
    if (l.fd.open()) return l;
    error = errno;
  }
  throw fsdp::EnvironmentError("[launch] rank 0 cannot listen at " + meeting.address + ":" +
                               std::to_string(meeting.ports.front()) + ": " + std::strerror(error) +
                               "; choose another port (MASTER_PORT)");
}

LineSocket meet_leader(const Meeting& meeting, const std::string& secret, fsdp::Nanos deadline,
                       const std::function<bool()>& go_on) {
  int error = ETIMEDOUT;
  bool unproven = false;
  const auto left = [&](fsdp::Nanos most) { return std::min(deadline, fsdp::steady_now() + most); };
  while (go_on() && fsdp::steady_now() < deadline) {
    for (const int port : meeting.ports) {
      Fd fd = try_to_connect(meeting.address, port, left(kConnecting));
      if (!fd.open()) {
        if (error != ECONNREFUSED) error = errno;
        continue;
      }
      LineSocket leader(std::move(fd));
      if (shake_hands(leader, secret, meeting.run, left(kShaking))) return leader;
      unproven = true;
    }
    fsdp::sleep_until(left(kRetry));
  }
  const std::string where = meeting.address + (meeting.ports.size() == 1 ? ":" + std::to_string(meeting.ports.front())
                                                                         : ", at the ports of this run");
  if (!go_on()) throw fsdp::CommError("[launch] interrupted before the ranks had met");
  if (unproven)
    throw fsdp::CommError("[launch] what answers at " + where +
                          " did not prove that it knows this run's secret, or does not take this rank's proof; is the "
                          "same " +
                          kSecretVariable + " or " + kSecretFileVariable + " set for every rank?");
  throw fsdp::CommError("[launch] no connection to rank 0 at " + where + ": " + std::strerror(error) +
                        "; is rank 0 running there, and is that address, and every port of it, open to this host?");
}

}  // namespace harness
