// What a rank is doing, readable from another thread at any time: for the launcher's question to a rank that is silent.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/transport.h"
#include "harness/trial/lateness.h"

namespace harness {

class RankProgress {
 public:
  enum class Phase : std::uint32_t { kBuilding, kReady, kWarmup, kRepetition, kTraced, kResult };

  // Names for units; before the first collective, once.
  void set_unit_names(std::vector<std::string> names);
  void set_phase(Phase phase, int index = 0);
  void set_step(int step) { step_.store(step, std::memory_order_relaxed); }
  void note_collective(fsdp::CollectiveKind kind, fsdp::UnitId unit, fsdp::Pass pass);

  // A communicator of this rank that is about to connect, its first call; returns its number. At most kMost.
  int add_communicator(const std::string& name, std::vector<int> members);
  void enter(int communicator);
  void leave(int communicator);

  // "repetition 2, step 3; last collective all_gather of model.layers.3, backward"
  std::string where() const;
  std::vector<CommunicatorState> communicators() const;

  static constexpr std::size_t kMost = 32;

 private:
  struct Place {
    std::string name;
    std::vector<int> members;
    std::atomic<std::uint64_t> calls{0};  // twice their number, and one while it is in the last of them
  };
  std::atomic<Phase> phase_{Phase::kBuilding};
  std::atomic<int> index_{0}, step_{0};
  std::atomic<std::uint64_t> collective_{0};  // kind + 1, pass, unit; 0: none yet
  std::vector<std::string> names_;
  std::atomic<bool> named_{false};
  std::array<Place, kMost> places_;
  std::atomic<std::size_t> place_count_{0};
};

// Bytes that one rank sends for the call by the ring formulas, in the dtype that travels: (W-1)/W of the full
// buffer for an all-gather or a reduce-scatter, twice that for an all-reduce, all of it for a broadcast.
fsdp::Bytes ring_bytes(const fsdp::CollectiveCall& call, int group_size);

// Passes every call on, notes it in the progress, and counts.
class WatchedCollectives final : public fsdp::Collectives {
 public:
  struct Counts {
    std::int64_t calls = 0;
    fsdp::Bytes sent = 0;
  };

  WatchedCollectives(fsdp::Collectives& inner, RankProgress& progress) : inner_(inner), progress_(progress) {}
  // Since the last call of take_counts().
  Counts take_counts() { return std::exchange(counts_, Counts{}); }

  int rank() const override { return inner_.rank(); }
  int world() const override { return inner_.world(); }
  int group_size(fsdp::Communicator c) const override { return inner_.group_size(c); }
  void enqueue(fsdp::Lane lane, const fsdp::CollectiveCall& call) override {
    progress_.note_collective(call.kind, call.unit, call.pass);
    ++counts_.calls;
    counts_.sent += ring_bytes(call, inner_.group_size(call.communicator));
    inner_.enqueue(lane, call);
  }
  std::vector<std::uint64_t> exchange(std::uint64_t value) override { return inner_.exchange(value); }
  void* allocate(fsdp::Bytes n) override { return inner_.allocate(n); }
  void release(void* p) noexcept override { inner_.release(p); }

 private:
  fsdp::Collectives& inner_;
  RankProgress& progress_;
  Counts counts_;
};

// Passes every call on, and notes in the progress which one the rank is in.
class WatchedTransport final : public fsdp::Transport {
 public:
  WatchedTransport(std::unique_ptr<fsdp::Transport> inner, RankProgress& progress, int communicator)
      : inner_(std::move(inner)), progress_(progress), communicator_(communicator) {}

  int rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  fsdp::Nanos run(const fsdp::CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override;
  void* allocate(fsdp::Bytes n) override { return inner_->allocate(n); }
  void release(void* p) noexcept override { inner_->release(p); }
  void check() override { inner_->check(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  const std::unique_ptr<fsdp::Transport> inner_;
  RankProgress& progress_;
  const int communicator_;
};

}  // namespace harness
