#include "fsdp/comm/local_board.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "fsdp/core/seconds.h"

namespace fsdp {

// Records and stages alternate between two halves. A rank that begins call n+2 has met everybody in call n+1, so
// everybody has left call n, and its half is free.
struct alignas(64) LocalBoard::Slot {
  CallRecord record[2];
  std::atomic<std::uint32_t> meetings;  // that the rank has come to
};

struct alignas(64) LocalBoard::Shared {
  // Lowest bit: somebody gave up. Rest: meetings complete.
  WaitWord<WaitScope::kProcesses> generation;
  alignas(64) std::atomic<std::uint32_t> here;  // ranks that have come to the meeting in progress
  alignas(64) std::atomic<std::uint32_t> given_up;
  std::int32_t given_up_by;
  char reason[kReasonBytes];
};

namespace {
constexpr std::uint32_t kGaveUpBit = 1, kOneMeeting = 2;

Bytes aligned(std::size_t n) { return static_cast<Bytes>((n + 63) / 64 * 64); }
}  // namespace

bool CallRecord::agrees_with(const CallRecord& o) const {
  if (is_exchange || o.is_exchange) return is_exchange == o.is_exchange;
  return kind == o.kind && unit == o.unit && count == o.count && in_dtype == o.in_dtype && out_dtype == o.out_dtype;
}

std::string CallRecord::describe() const {
  std::string text = is_exchange ? "exchange" : std::string(name_of(kind));
  if (unit != kNoUnit) text += " of unit " + std::to_string(unit);
  text += " (";
  if (!is_exchange && kind != CollectiveKind::kBarrier) {
    text += std::to_string(count) + " x " + std::string(name_of(in_dtype));
    if (out_dtype != in_dtype) text += " to " + std::string(name_of(out_dtype));
    text += ", ";
  }
  return text + "call " + std::to_string(number) + ")";
}

Bytes LocalBoard::bytes_for(int world) {
  return aligned(sizeof(Shared)) + world * (aligned(sizeof(Slot)) + 2 * kStageBytes);
}

LocalBoard::LocalBoard(void* memory, int rank, std::vector<int> members, Nanos timeout)
    : shared_(static_cast<Shared*>(memory)), rank_(rank), members_(std::move(members)), timeout_(timeout) {
  SHARDSCOPE_CHECK(rank >= 0 && rank < world(), std::to_string(rank) + " of " + std::to_string(world()));
}

LocalBoard::Slot& LocalBoard::slot(int rank) const {
  auto* base = reinterpret_cast<std::byte*>(shared_) + aligned(sizeof(Shared));
  return *reinterpret_cast<Slot*>(base + rank * aligned(sizeof(Slot)));
}

std::byte* LocalBoard::stage(int rank) {
  auto* base = reinterpret_cast<std::byte*>(shared_) + aligned(sizeof(Shared)) + world() * aligned(sizeof(Slot));
  return base + (2 * rank + static_cast<Bytes>(calls_ & 1)) * kStageBytes;
}

const CallRecord& LocalBoard::record(int rank) const { return slot(rank).record[calls_ & 1]; }

void LocalBoard::check() const {
  if ((shared_->generation.load() & kGaveUpBit) != 0) throw_given_up();
}

CallRecord& LocalBoard::begin_call() {
  check();
  ++calls_;
  CallRecord& mine = slot(rank_).record[calls_ & 1];
  mine = {};
  mine.number = calls_;
  return mine;
}

Nanos LocalBoard::meet() {
  slot(rank_).record[calls_ & 1].arrival = steady_now();
  pass();
  check_agreement();
  Nanos last = 0;
  for (int r = 0; r < world(); ++r) last = std::max(last, record(r).arrival);
  return last;
}

void LocalBoard::meet_again() { pass(); }

void LocalBoard::pass() {
  const std::uint32_t mine = ++meetings_;
  slot(rank_).meetings.store(mine, std::memory_order_release);
  if (world() == 1) return;
  if (shared_->here.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(world())) {
    shared_->here.store(0, std::memory_order_relaxed);  // nobody comes to the next meeting before this one is complete
    shared_->generation.add(kOneMeeting);
    return;
  }
  const auto complete = [mine](std::uint32_t g) {
    return static_cast<std::int32_t>((g & ~kGaveUpBit) - mine * kOneMeeting) >= 0;
  };
  const auto ended = [&complete](std::uint32_t g) { return complete(g) || (g & kGaveUpBit) != 0; };
  const bool in_time = shared_->generation.wait(ended, timeout_);
  if (complete(shared_->generation.load())) return;
  if (in_time) throw_given_up();
  throw_timeout();
}

void LocalBoard::check_agreement() const {
  const CallRecord& first = record(0);
  for (int r = 1; r < world(); ++r) {
    if (record(r).agrees_with(first)) continue;
    throw CommError("[comm] ranks disagree: " + name(0) + " is in " + first.describe() + ", " + name(r) + " is in " +
                    record(r).describe() + "; their plans, or the order in which they run modules, differ");
  }
}

void LocalBoard::throw_timeout() {
  std::string missing;
  int count = 0;
  for (int r = 0; r < world(); ++r) {
    if (static_cast<std::int32_t>(slot(r).meetings.load(std::memory_order_acquire) - meetings_) >= 0) continue;
    missing += (count++ > 0 ? ", " : "") + std::to_string(members_[static_cast<std::size_t>(r)]);
  }
  const std::string text = "[comm] " + name(rank_) + " waited " + seconds(timeout_) + " in " +
                           record(rank_).describe() + ": " + (count == 1 ? "rank " : "ranks ") + missing +
                           (count == 1 ? " has" : " have") + " not arrived; look there, or raise step_timeout";
  give_up(kTimedOut, text.c_str());
  throw TimeoutError(text);
}

void LocalBoard::throw_given_up() const {
  const std::uint32_t how = shared_->given_up.load(std::memory_order_acquire);
  if (how == kTimedOut) throw TimeoutError(shared_->reason);
  throw CommError("[comm] " + name(shared_->given_up_by) + " gave up: " + shared_->reason);
}

void LocalBoard::give_up(GiveUp how, const char* reason) noexcept {
  std::uint32_t none = kNone;
  if (!shared_->given_up.compare_exchange_strong(none, kWriting, std::memory_order_acq_rel)) return;
  shared_->given_up_by = rank_;
  std::snprintf(shared_->reason, kReasonBytes, "%s", reason);
  shared_->given_up.store(how, std::memory_order_release);
  shared_->generation.set_bits(kGaveUpBit);
}

}  // namespace fsdp
