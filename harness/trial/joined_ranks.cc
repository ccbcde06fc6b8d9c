#include "harness/trial/joined_ranks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <utility>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;
constexpr fsdp::Nanos kTick = 50 * kMillisecond;
// Between hosts a rank has this long to hear of the end, on top of what its program gets.
constexpr fsdp::Nanos kFarewell = 1000 * kMillisecond;

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
  for (Rank& r : ranks_) r.socket.close();
}

std::string JoinedRanks::log_tail(int rank, std::size_t bytes) const {
  const std::string& log = this->rank(rank).log;
  return log.substr(log.size() - std::min(bytes, log.size()));
}

void RankGathering::accept_one() {
  Fd fd(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.open()) return;
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  JoinedRanks::Rank r;
  r.address = local_end(fd.get()).address;
  r.socket = LineSocket(std::move(fd));
  unknown_.push_back(std::move(r));
}

// Who says nothing sensible, or does not know the token, is none of the ranks.
void RankGathering::hear(std::vector<JoinedRanks::Rank>& unknown) {
  std::vector<JoinedRanks::Rank> silent;
  for (JoinedRanks::Rank& r : unknown) {
    std::string line;
    if (!r.socket.next(line, 0)) {
      if (r.socket.open()) silent.push_back(std::move(r));
      continue;
    }
    try {
      r.hello = hello_from_json(line);
    } catch (const fsdp::CommError&) {
      continue;
    }
    if (r.hello.token == token_) came_.push_back(std::move(r));
  }
  unknown = std::move(silent);
}

std::unique_ptr<JoinedRanks> RankGathering::gather(fsdp::Nanos deadline, const std::function<void()>& check,
                                                   const std::atomic<bool>* stop) {
  while (static_cast<int>(came_.size()) < world_ && fsdp::steady_now() < deadline) {
    check();
    if (stop != nullptr && stop->load()) return nullptr;
    std::vector<pollfd> sockets = {{listener_.fd.get(), POLLIN, 0}};
    for (const JoinedRanks::Rank& r : unknown_) sockets.push_back({r.socket.fd(), POLLIN, 0});
    poll(sockets.data(), sockets.size(), milliseconds_to(deadline, kTick));
    if (sockets.front().revents != 0) accept_one();
    hear(unknown_);
  }
  std::vector<RankIdentity> identities;
  for (const JoinedRanks::Rank& r : came_) identities.push_back(r.hello.identity);
  const std::string error = identity_error(identities, world_);
  if (!error.empty()) {
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
