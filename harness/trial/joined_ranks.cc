#include "harness/trial/joined_ranks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "harness/trial/run_secret.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;
constexpr fsdp::Nanos kTick = 50 * kMillisecond;
// Between hosts a rank has this long to hear of the end, on top of what its program gets.
constexpr fsdp::Nanos kFarewell = 1000 * kMillisecond;
constexpr std::size_t kHelloLine = std::size_t{256} << 10;  // with all settings

int milliseconds_to(fsdp::Nanos deadline, fsdp::Nanos at_most) {
  const fsdp::Nanos left = std::clamp<fsdp::Nanos>(deadline - fsdp::steady_now(), 0, at_most);
  return static_cast<int>((left + kMillisecond - 1) / kMillisecond);
}
}  // namespace

JoinedRanks::JoinedRanks(std::vector<Rank> ranks) : ranks_(std::move(ranks)) {}

int JoinedRanks::hosts() const {
  std::map<std::string, int> all;
  for (const Rank& r : ranks_) ++all[r.hello.identity.host];
  return static_cast<int>(all.size());
}

std::string JoinedRanks::hosts_text() const {
  std::vector<std::pair<std::string, int>> all;
  for (const Rank& r : ranks_) {
    const auto same = [&](const auto& h) { return h.first == r.hello.identity.host; };
    const auto found = std::find_if(all.begin(), all.end(), same);
    if (found != all.end()) {
      ++found->second;
    } else {
      all.emplace_back(r.hello.identity.host, 1);
    }
  }
  std::string text;
  for (const auto& [host, n] : all) text += (text.empty() ? "" : ", ") + host + ":" + std::to_string(n);
  return text;
}

pid_t JoinedRanks::pid(int rank) const { return static_cast<pid_t>(this->rank(rank).hello.identity.pid); }

void JoinedRanks::send(int rank, const std::string& line) {
  ranks_.at(static_cast<std::size_t>(rank)).socket.send(line);
}

void JoinedRanks::receive(int rank, std::vector<RankUpdate>& updates) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  for (std::string& line : r.socket.receive()) {
    if (const auto end = rank_end_from_json(line)) {
      r.log = end->log;
      updates.push_back({RankUpdate::Kind::kEnded, rank, {}, end->wait_status, end->host_oom});
    } else if (const auto seen = seen_from_json(line)) {
      r.sight = *seen;
    } else {
      updates.push_back({RankUpdate::Kind::kLine, rank, std::move(line), 0});
    }
  }
  if (r.socket.open() || r.closed) return;
  r.closed = true;
  updates.push_back({RankUpdate::Kind::kClosed, rank, {}, 0});
}

std::vector<RankUpdate> JoinedRanks::wait(fsdp::Nanos deadline) {
  std::vector<RankUpdate> updates;
  do {
    std::vector<pollfd> sockets;
    for (const Rank& r : ranks_) sockets.push_back({r.socket.fd(), POLLIN, 0});  // poll passes over -1
    poll(sockets.data(), sockets.size(), milliseconds_to(deadline, 2 * kTick));
    for (int rank = 0; rank < count(); ++rank) receive(rank, updates);
  } while (updates.empty() && fsdp::steady_now() < deadline);
  return updates;
}

void JoinedRanks::end(int exit_code, fsdp::Nanos grace) noexcept {
  if (std::exchange(ended_, true)) return;
  for (Rank& r : ranks_) r.socket.send(end_line(exit_code));
  const fsdp::Nanos deadline = fsdp::steady_now() + grace + kFarewell;
  const auto open = [](const Rank& r) { return r.socket.open(); };
  try {
    while (std::any_of(ranks_.begin(), ranks_.end(), open) && fsdp::steady_now() < deadline)
      wait(std::min(deadline, fsdp::steady_now() + kTick));
  } catch (const std::exception&) {  // a line that cannot be read: what ranks say now changes nothing
  }
  end_those_that_cannot();
  for (Rank& r : ranks_) r.socket.close();
}

// A stopped process does not see the end, and its launcher would wait for it.
void JoinedRanks::end_those_that_cannot() noexcept {
  for (const Rank& r : ranks_)
    if (r.socket.open() && r.hello.identity.host == ranks_.front().hello.identity.host)
      end_if_stopped(static_cast<pid_t>(r.hello.identity.pid));
}

std::string JoinedRanks::log_tail(int rank, std::size_t bytes) const {
  const std::string& log = this->rank(rank).log;
  return log.substr(log.size() - std::min(bytes, log.size()));
}

// False: nobody else waits, or there is no room for him.
bool RankGathering::accept_one() {
  Fd fd(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.open()) {
    full_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (!full_ || unproven_.empty()) return false;
    give_up_one();  // it may be a rank that waits
    return true;
  }
  full_ = false;
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (unproven_.size() >= kMostUnproven) give_up_one();
  unproven_.push_back({{}, {secret_, run_}, fsdp::steady_now() + kPatience});
  JoinedRanks::Rank& r = unproven_.back().rank;
  r.socket = LineSocket(std::move(fd));
  r.socket.limit(kHandshakeLine);
  return true;
}

void RankGathering::admit() {
  for (std::size_t i = 0; i < kMostUnproven && accept_one(); ++i) {
  }
}

// The oldest of those that have said nothing, else the oldest.
void RankGathering::give_up_one() {
  const auto silent =
      std::find_if(unproven_.begin(), unproven_.end(), [](const Caller& c) { return !c.handshake.knocked(); });
  unproven_.erase(silent != unproven_.end() ? silent : unproven_.begin());
}

// False: it is a rank now, or none and gone.
bool RankGathering::hear(Caller& caller) {
  LineSocket& socket = caller.rank.socket;
  for (std::string line; socket.next(line, 0);) {
    if (!caller.handshake.proven()) {
      const auto answer = caller.handshake.answer(line);
      if (!answer) {
        refused_ += caller.handshake.knocked() ? 1 : 0;
        return false;
      }
      socket.send(*answer, 0);
      if (!caller.handshake.proven()) continue;
      const SessionKeys keys = caller.handshake.keys();
      socket.seal(keys.of_leader, keys.of_rank);
      socket.limit(kHelloLine);
      continue;
    }
    caller.rank.hello = hello_from_json(line);
    caller.rank.address = local_end(socket.fd()).address;
    socket.limit(kLongestLine);
    came_.push_back(std::move(caller.rank));
    return false;
  }
  return socket.open() && fsdp::steady_now() < caller.until;
}

void RankGathering::hear_all() {
  for (auto caller = unproven_.begin(); caller != unproven_.end();) {
    bool stays = false;
    try {
      stays = hear(*caller);
    } catch (const fsdp::CommError&) {  // a rank of another version, say
    }
    caller = stays ? std::next(caller) : unproven_.erase(caller);
  }
}

std::unique_ptr<JoinedRanks> RankGathering::gather(fsdp::Nanos deadline, const std::function<void()>& check,
                                                   const std::atomic<bool>* stop) {
  while (static_cast<int>(came_.size()) < world_ && fsdp::steady_now() < deadline) {
    check();
    if (stop != nullptr && stop->load()) return nullptr;
    // Without room for another descriptor its being ready would make this loop spin: it is tried once a tick.
    std::vector<pollfd> sockets = {{full_ ? -1 : listener_.fd.get(), POLLIN, 0}};
    for (const Caller& c : unproven_) sockets.push_back({c.rank.socket.fd(), POLLIN, 0});
    // poll() fails at once where the process may have fewer descriptors than it is asked about.
    if (poll(sockets.data(), sockets.size(), milliseconds_to(deadline, kTick)) < 0 && errno != EINTR)
      fsdp::sleep_until(std::min(deadline, fsdp::steady_now() + kTick));
    hear_all();
    if (full_ || sockets.front().revents != 0) admit();
  }
  unproven_.clear();
  listener_.fd.reset();
  std::vector<RankIdentity> identities;
  for (const JoinedRanks::Rank& r : came_) identities.push_back(r.hello.identity);
  std::string error = identity_error(identities, world_);
  if (!error.empty()) {
    if (refused_ > 0)
      error += "Connections that do not know this run's secret: " + std::to_string(refused_) +
               "; if ranks are among them, give every host the same one (" + kSecretVariable + ", or the file of " +
               kSecretFileVariable + ")\n";
    refuse(error);
    throw fsdp::ConfigError(error);
  }
  std::sort(came_.begin(), came_.end(),
            [](const auto& a, const auto& b) { return a.hello.identity.rank < b.hello.identity.rank; });
  return std::make_unique<JoinedRanks>(std::move(came_));
}

void RankGathering::refuse(const std::string& text) noexcept {
  for (JoinedRanks::Rank& r : came_) r.socket.send(refusal_line(text));
  came_.clear();
}

}  // namespace harness
