// Which rank the others wait for: pure functions of what the ranks of a trial say of their communicators.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/trial/process_sight.h"

namespace harness {

// Of one rank, on one communicator.
struct CommunicatorState {
  std::string name;          // the same on all its members, and on no others
  std::vector<int> members;  // ranks
  std::uint64_t calls = 0;   // that the rank has come to; the first is connecting
  bool waiting = false;      // in the last of them
  friend bool operator==(const CommunicatorState&, const CommunicatorState&) = default;
};

// A rank's answer to `report`, beside RankEvent `where`: {"at":[...]}. Empty: another kind of line. Throws
// fsdp::CommError.
std::string at_line(const std::vector<CommunicatorState>& states);
std::optional<std::vector<CommunicatorState>> at_from_json(const std::string& line);

struct RankState {
  bool gone = false;    // failed or ended: it waits for nobody, and nobody should wait for it
  bool answers = true;  // it has answered the last question
  bool given = false;   // it has done what it was asked for
  ProcessSight sight;
  std::vector<CommunicatorState> at;  // as it said last
  std::string where;                  // in words; empty: it has never said
  bool waits() const;
};

// The ranks that have to be looked at, lowest first: those that do not answer, else those that others wait for and that
// wait for nobody themselves; empty when all that still run are in the same calls.
std::vector<int> late_ranks(const std::vector<RankState>& ranks);

// What is known of one that answers: others wait for it, or it does nothing.
enum class Lateness { kAwaited, kIdle };

// "rank 2 does not answer in repetition 1: its process is stopped (SIGSTOP)".
std::string lateness_text(const std::vector<RankState>& ranks, const std::vector<int>& late, Lateness how,
                          const std::string& doing);

}  // namespace harness
