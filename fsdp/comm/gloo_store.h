// A Rendezvous as the store in which c10d's Gloo looks for its peers' addresses. Only what Gloo asks for is there.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "fsdp/comm/rendezvous.h"

namespace fsdp {

class GlooStore final : public c10d::Store {
 public:
  // Keys get the prefix. `deadline` (steady clock): of every wait. The rendezvous outlives the store.
  GlooStore(Rendezvous& rendezvous, std::string prefix, Nanos deadline)
      : rendezvous_(rendezvous), prefix_(std::move(prefix)), deadline_(deadline) {}

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  std::int64_t getNumKeys() override;

 private:
  std::string value_of(const std::string& key, Nanos deadline);

  Rendezvous& rendezvous_;
  const std::string prefix_;
  const Nanos deadline_;
};

}  // namespace fsdp
