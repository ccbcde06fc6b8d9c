// What the processes say to each other when a launcher has started every rank of a run (join.h): one JSON document a
// line, over TCP between a rank and the leader, over the control socket between a rank and its rank program.
//
//   joiner -> rank program   RankPreparation; then as messages.h says
//   joiner -> leader         the handshake (handshake.h); Hello; the rank program's lines as they are; RankSeen as
//   often
//                            as the leader asks the rank for a report; RankEnd
//   leader -> joiner         a refusal, or RankPreparation and the lines for the rank program; the end with exit code
// Malformed lines: fsdp::CommError.
#pragma once
#include <optional>
#include <string>

#include "harness/trial/launchers.h"
#include "harness/trial/process_sight.h"

namespace harness {

// What a rank cannot inherit from a leader that has not started it.
struct RankPreparation {
  std::string shared_memory;  // path at which the ranks of one host find their shared memory; empty: none
  std::string interface;      // network interface for Gloo; empty: its own choice
  long leader_pid = 0;        // on the host of rank 0
  std::string leader_host;
};
std::string to_json_line(const RankPreparation& preparation);
std::optional<RankPreparation> preparation_from_json(const std::string& line);

struct Hello {
  RankIdentity identity;
  std::string interface;  // by which the leader is reached
};
std::string to_json_line(const Hello& hello);
Hello hello_from_json(const std::string& line);

// What the joiner sees of the rank program, whether or not that answers.
std::string seen_line(const ProcessSight& sight);
std::optional<ProcessSight> seen_from_json(const std::string& line);

// The rank program has ended.
struct RankEnd {
  int wait_status = 0;    // as waitpid gives it
  bool host_oom = false;  // as RankUpdate says
  std::string log;        // the end of what it wrote
};
std::string to_json_line(const RankEnd& end);
std::optional<RankEnd> rank_end_from_json(const std::string& line);

std::string refusal_line(const std::string& text);
std::optional<std::string> refusal_from_json(const std::string& line);
std::string end_line(int exit_code);
std::optional<int> end_from_json(const std::string& line);

}  // namespace harness
