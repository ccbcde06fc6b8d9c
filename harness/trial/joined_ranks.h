// The leader's side of join.h: a socket at which ranks report, and the ranks once all have come.
#pragma once
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "harness/trial/handshake.h"
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
    ProcessSight sight;   // as its joiner saw it last
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
  ProcessSight sight(int rank) const override { return this->rank(rank).sight; }

 private:
  void receive(int rank, std::vector<RankUpdate>& updates);
  void end(int exit_code, fsdp::Nanos grace) noexcept;
  void end_those_that_cannot() noexcept;

  std::vector<Rank> ranks_;
  bool ended_ = false;
};

// Takes the connections of strangers and of ranks, and keeps those who prove that they know the run's secret.
class RankGathering {
 public:
  // Bounds of what strangers cost (docs/trust.md).
  static constexpr std::size_t kMostUnproven = 64;
  static constexpr fsdp::Nanos kPatience = 5'000'000'000;  // with one that has not proven it

  RankGathering(int world, std::string secret, std::string run, Listener listener)
      : world_(world), secret_(std::move(secret)), run_(std::move(run)), listener_(std::move(listener)) {}
  // Waits until `world` ranks have come, or the deadline. `check` is called often and may throw. std::nullptr: stopped.
  // Throws fsdp::ConfigError with a table when they do not agree or are not complete; all that came are told. Nobody is
  // admitted afterwards.
  std::unique_ptr<JoinedRanks> gather(fsdp::Nanos deadline, const std::function<void()>& check,
                                      const std::atomic<bool>* stop);
  // Ends the wait of those that came.
  void refuse(const std::string& text) noexcept;
  std::size_t unproven() const { return unproven_.size(); }

 private:
  struct Caller {
    JoinedRanks::Rank rank;
    LeaderHandshake handshake;
    fsdp::Nanos until = 0;
  };
  void admit();
  bool accept_one();
  void give_up_one();
  void hear_all();
  bool hear(Caller& caller);

  const int world_;
  const std::string secret_, run_;
  Listener listener_;
  std::vector<JoinedRanks::Rank> came_;
  std::list<Caller> unproven_;  // the oldest first
  int refused_ = 0;             // who gave a wrong proof
  bool full_ = false;           // no descriptor was left for the last caller
};

}  // namespace harness
