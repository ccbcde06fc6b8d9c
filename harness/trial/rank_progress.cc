#include "harness/trial/rank_progress.h"

#include "fsdp/core/errors.h"

namespace harness {

void RankProgress::set_unit_names(std::vector<std::string> names) {
  names_ = std::move(names);
  named_.store(true, std::memory_order_release);
}

void RankProgress::set_phase(Phase phase, int index) {
  index_.store(index, std::memory_order_relaxed);
  step_.store(0, std::memory_order_relaxed);
  phase_.store(phase, std::memory_order_relaxed);
}

void RankProgress::note_collective(fsdp::CollectiveKind kind, fsdp::UnitId unit, fsdp::Pass pass) {
  const std::uint64_t packed = (static_cast<std::uint64_t>(kind) + 1) << 40 | static_cast<std::uint64_t>(pass) << 32 |
                               static_cast<std::uint32_t>(unit);
  collective_.store(packed, std::memory_order_relaxed);
}

fsdp::Bytes ring_bytes(const fsdp::CollectiveCall& call, int group_size) {
  const fsdp::Bytes bytes = call.count * size_of(call.in_dtype);
  switch (call.kind) {
    case fsdp::CollectiveKind::kAllGather:
    case fsdp::CollectiveKind::kReduceScatter:
      return bytes * (group_size - 1);  // `count` is one rank's part
    case fsdp::CollectiveKind::kAllReduce:
      return 2 * bytes * (group_size - 1) / group_size;
    case fsdp::CollectiveKind::kBroadcast:
      return group_size > 1 ? bytes : 0;
    case fsdp::CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

int RankProgress::add_communicator(const std::string& name, std::vector<int> members) {
  const std::size_t at = place_count_.load(std::memory_order_relaxed);
  SHARDSCOPE_CHECK(at < kMost, name);
  places_[at].name = name;
  places_[at].members = std::move(members);
  place_count_.store(at + 1, std::memory_order_release);
  enter(static_cast<int>(at));
  return static_cast<int>(at);
}

// The order matters to nobody: another thread reads each by itself.
void RankProgress::enter(int communicator) {
  places_[static_cast<std::size_t>(communicator)].calls.fetch_add(3, std::memory_order_relaxed);
}
void RankProgress::leave(int communicator) {
  places_[static_cast<std::size_t>(communicator)].calls.fetch_sub(1, std::memory_order_relaxed);
}

std::vector<CommunicatorState> RankProgress::communicators() const {
  std::vector<CommunicatorState> all;
  for (std::size_t i = 0; i < place_count_.load(std::memory_order_acquire); ++i) {
    const std::uint64_t calls = places_[i].calls.load(std::memory_order_relaxed);
    all.push_back({places_[i].name, places_[i].members, calls / 2, calls % 2 != 0});
  }
  return all;
}

fsdp::Nanos WatchedTransport::run(const fsdp::CollectiveCall& call) {
  progress_.enter(communicator_);
  const fsdp::Nanos arrival = inner_->run(call);  // after an error it stays where it was
  progress_.leave(communicator_);
  return arrival;
}

std::vector<std::uint64_t> WatchedTransport::exchange(std::uint64_t value) {
  progress_.enter(communicator_);
  std::vector<std::uint64_t> values = inner_->exchange(value);
  progress_.leave(communicator_);
  return values;
}

std::string RankProgress::where() const {
  const std::string step = ", step " + std::to_string(step_.load(std::memory_order_relaxed));
  std::string text;
  switch (phase_.load(std::memory_order_relaxed)) {
    case Phase::kBuilding:
      text = "building the model";
      break;
    case Phase::kReady:
      text = "waiting for the launcher";
      break;
    case Phase::kWarmup:
      text = "warm-up" + step;
      break;
    case Phase::kRepetition:
      text = "repetition " + std::to_string(index_.load(std::memory_order_relaxed)) + step;
      break;
    case Phase::kTraced:
      text = "traced repetition" + step;
      break;
    case Phase::kResult:
      text = "giving the result";
      break;
  }
  const std::uint64_t packed = collective_.load(std::memory_order_relaxed);
  if (packed == 0) return text + "; no collective yet";
  const auto unit = static_cast<fsdp::UnitId>(static_cast<std::uint32_t>(packed));
  const bool named =
      named_.load(std::memory_order_acquire) && unit >= 0 && static_cast<std::size_t>(unit) < names_.size();
  const std::string name = named ? names_[static_cast<std::size_t>(unit)] : "unit " + std::to_string(unit);
  return text + "; last collective " + std::string(name_of(static_cast<fsdp::CollectiveKind>((packed >> 40) - 1))) +
         " of " + name + ", " + std::string(name_of(static_cast<fsdp::Pass>(packed >> 32 & 0xff)));
}

}  // namespace harness
