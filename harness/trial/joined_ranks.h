// The leader's side of join.h: a socket at which ranks report, and the ranks once all have come.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/trial/join_messages.h"
#include "harness/trial/network.h"
#include "harness/trial/rank_group.h"

namespace harness {

class JoinedRanks final : public RankGroup {
 public:
  struct Rank {
    LineSocket socket;
    Hello hello;
    std::string address;  // of this host, as the rank reaches it
    std::string log;
    bool closed = false;  // and reported
  };
  explicit JoinedRanks(std::vector<Rank> ranks);  // by rank
  ~JoinedRanks() override { terminate(0); }

  const Rank& rank(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }
  int hosts() const;
  std::string hosts_text() const;  // "n0:4, n1:4"

  int count() const override { return static_cast<int>(ranks_.size()); }
  pid_t pid(int rank) const override;
  void send(int rank, const std::string& line) override;
  std::vector<RankUpdate> wait(fsdp::Nanos deadline) override;
  void finish(fsdp::Nanos grace) noexcept override { end(0, grace); }
  void terminate(fsdp::Nanos grace) noexcept override { end(1, grace); }
  std::string log_tail(int rank, std::size_t bytes = 4096) const override;

 private:
  void receive(int rank, std::vector<RankUpdate>& updates);
  void end(int exit_code, fsdp::Nanos grace) noexcept;

  std::vector<Rank> ranks_;
  bool ended_ = false;
};

class RankGathering {
 public:
  RankGathering(int world, std::string token)
      : world_(world), token_(std::move(token)), listener_(listen_everywhere()) {}
  int port() const { return listener_.port; }
  // Waits until `world` ranks have come, or the deadline. `check` is called often and may throw. std::nullptr: stopped.
  // Throws fsdp::ConfigError with a table when they do not agree or are not complete; all that came are told.
  std::unique_ptr<JoinedRanks> gather(fsdp::Nanos deadline, const std::function<void()>& check,
                                      const std::atomic<bool>* stop);
  // Ends the wait of those that came.
  void refuse(const std::string& text) noexcept;

 private:
  void accept_one();
  void hear(std::vector<JoinedRanks::Rank>& unknown);

  const int world_;
  const std::string token_;
  Listener listener_;
  std::vector<JoinedRanks::Rank> came_, unknown_;
};

}  // namespace harness
