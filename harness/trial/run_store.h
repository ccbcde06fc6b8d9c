// What the ranks of a trial tell each other apart from their collectives: Gloo's addresses, who gave up, who waits in
// what. It goes through whoever leads them, over the connections that they have anyway, so that no rank has to answer
// for another one to go on, and that strangers have no part in it.
//
//   rank -> leader   {"store":["set",KEY,VALUE]}, {"store":["await",KEY]}
//   leader -> rank   {"stored":[KEY,VALUE]}       to each that awaits it, as soon as it is there
// Values are bytes, in hexadecimal digits.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/comm/rendezvous.h"

namespace harness {

// The leader's side.
class RunStore {
 public:
  struct Answer {
    int rank;
    std::string line;
  };
  // What a line of a rank leads to; std::nullopt when it is not for the store. Throws fsdp::CommError for one that
  // cannot be read, or is more than a run needs.
  std::optional<std::vector<Answer>> take(int rank, const std::string& line);

 private:
  struct Entry {
    std::optional<std::string> value;
    std::set<int> waiting;
  };
  std::map<std::string, Entry> entries_;
};

// A rank's side. Thread-safe.
class LeaderRendezvous final : public fsdp::Rendezvous {
 public:
  using Send = std::function<void(const std::string& line)>;  // thread-safe
  LeaderRendezvous(std::string host, Send send) : host_(std::move(host)), send_(std::move(send)) {}
  const std::string& host() const override { return host_; }
  void set(const std::string& key, const std::string& value) override;
  std::shared_ptr<const fsdp::Awaited> await(const std::string& key) override;
  // True when the leader's line was for this.
  bool take(const std::string& line);

 private:
  const std::string host_;
  const Send send_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<fsdp::Awaited>> awaited_;
};

}  // namespace harness
