// Rendezvous: values under names, by which the ranks of a run find each other and tell each other what went wrong. Who
// keeps them is another matter: MemoryRendezvous below, or whoever leads the ranks. Nothing here waits without a
// deadline, and nothing waits for a rank: setting and asking return at once. Thread-safe.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fsdp/core/types.h"
#include "fsdp/device/host/wait_word.h"

namespace fsdp {

// A value that has been asked for, and may have come. Thread-safe.
class Awaited {
 public:
  // As far as it has come.
  std::optional<std::string> value() const;
  // Nothing, when it does not come until the deadline (steady clock).
  std::optional<std::string> wait_until(Nanos deadline) const;
  // Once; later ones change nothing.
  void give(std::string value);

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> value_;
  WaitWord<WaitScope::kThreads> given_;
};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // An address of this host in the network that the ranks use.
  virtual const std::string& host() const = 0;
  // The first value of a key stays.
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::shared_ptr<const Awaited> await(const std::string& key) = 0;
};

// For ranks that are threads of one process.
class MemoryRendezvous final : public Rendezvous {
 public:
  explicit MemoryRendezvous(std::string host = "127.0.0.1") : host_(std::move(host)) {}
  const std::string& host() const override { return host_; }
  void set(const std::string& key, const std::string& value) override { entry(key)->give(value); }
  std::shared_ptr<const Awaited> await(const std::string& key) override { return entry(key); }

 private:
  std::shared_ptr<Awaited> entry(const std::string& key);

  const std::string host_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Awaited>> entries_;
};

}  // namespace fsdp
