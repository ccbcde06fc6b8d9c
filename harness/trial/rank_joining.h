// The lines that come before the job when a launcher has started the ranks (join_messages.h).
#pragma once
#include "harness/trial/line_socket.h"
#include "harness/trial/messages.h"
#include "harness/trial/rank_link.h"

namespace harness {

class RankJoining {
 public:
  // Prepares as told, and returns the job. Throws fsdp::CommError, fsdp::EnvironmentError.
  RankJob receive_job(RankLink& link);

 private:
  Fd shared_memory_;  // stays open as long as the job is worked on
};

}  // namespace harness
