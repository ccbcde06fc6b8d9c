// LocalBoard: where the ranks of one communicator meet, in memory that all of them see: a barrier with a deadline, each
// rank's record of the call it is in, a small stage per rank, and the reason if somebody gave up.
// It lives in zeroed memory and holds no pointers, so threads and processes use it alike.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/core/types.h"
#include "fsdp/device/host/wait_word.h"

namespace fsdp {

// What a rank is in. Peers read it between the meeting of this call and that of the next but one.
struct CallRecord {
  bool is_exchange = false;
  CollectiveKind kind = CollectiveKind::kBarrier;
  Dtype in_dtype = Dtype::kFloat32, out_dtype = Dtype::kFloat32;
  UnitId unit = kNoUnit;
  Count count = 0;
  std::uint64_t number = 0;       // of the call on this communicator, from 1
  std::uint64_t value = 0;        // exchange
  std::uint64_t in = 0, out = 0;  // addresses as the memory's owner publishes them (local_memory.h)
  Nanos arrival = 0;

  // The part on which ranks must agree.
  bool agrees_with(const CallRecord& o) const;
  std::string describe() const;  // "all_gather of unit 3 (1024 x fp32, call 17)"
};

class LocalBoard {
 public:
  // Input of a call up to this size goes through the stage: no second meeting is needed.
  static constexpr Bytes kStageBytes = 32 * 1024;

  static Bytes bytes_for(int world);

  // `memory`: bytes_for(world) of zeros at the first use, 64-byte aligned, the same for all. `members`: names of the
  // ranks in messages. Throws TimeoutError when a wait has lasted `timeout`.
  LocalBoard(void* memory, int rank, std::vector<int> members, Nanos timeout);

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(members_.size()); }

  // This rank's record and stage for the next call. Fill in, then meet().
  CallRecord& begin_call();
  std::byte* own_stage() { return stage(rank_); }

  // Publishes the record, waits until every rank has published its own, and compares them: CommError that names both
  // sides. Returns the last arrival.
  Nanos meet();
  // Waits until every rank has come here: a later phase of the same call.
  void meet_again();

  // After meet(): of any rank.
  const CallRecord& record(int rank) const;
  std::byte* stage(int rank);

  // Throws what meet() would, if somebody has given up.
  void check() const;
  // First reason wins. Ends every wait on the board, now and later, with CommError.
  void abort(const std::string& reason) noexcept { give_up(kAborted, reason.c_str()); }

 private:
  enum GiveUp : std::uint32_t { kNone, kWriting, kAborted, kTimedOut };
  static constexpr std::size_t kReasonBytes = 1000;
  struct Shared;
  struct Slot;

  void pass();
  [[noreturn]] void throw_given_up() const;
  [[noreturn]] void throw_timeout();
  void check_agreement() const;
  void give_up(GiveUp how, const char* reason) noexcept;
  std::string name(int rank) const { return "rank " + std::to_string(members_[static_cast<std::size_t>(rank)]); }
  Slot& slot(int rank) const;

  Shared* const shared_;
  const int rank_;
  const std::vector<int> members_;
  const Nanos timeout_;
  std::uint64_t calls_ = 0;     // begun by this rank
  std::uint32_t meetings_ = 0;  // passed by this rank
};

}  // namespace fsdp
