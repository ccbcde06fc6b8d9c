// Rendezvous: a small key-value store at a host and port where the ranks of a run find each other. Rank 0 serves it.
// Backed by LibTorch's TCPStore, of which this header shows nothing. Thread-safe.
// While connecting, LibTorch asks DNS for the peers' names, 127.0.0.1's too; where DNS does not answer, RES_OPTIONS
// ("attempts:0", man resolv.conf) spares the wait.
#pragma once
#include <memory>
#include <string>

#include "fsdp/core/types.h"

namespace fsdp {

class Rendezvous {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;  // rank 0 may give 0: any free port, see port()
    int rank = 0;
    bool serves = true;              // rank 0: false when somebody else serves the store there
    Nanos timeout = 60'000'000'000;  // of connecting and of get()
    int listen_fd = -1;  // rank 0: a socket that listens at `port` already, inherited from who picked the port
  };

  // Rank 0 returns at once, the others when they have reached it: CommError if they cannot within the timeout.
  explicit Rendezvous(const Options& options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int port() const;
  const std::string& host() const;

  void set(const std::string& key, const std::string& value);
  // Sets the key unless it is set; returns what it holds then.
  std::string set_once(const std::string& key, const std::string& value);
  bool has(const std::string& key);
  // Waits for the key: TimeoutError.
  std::string get(const std::string& key);

  struct Impl;  // rendezvous_store.h
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp
