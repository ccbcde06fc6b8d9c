// The lines that come before the job when a launcher has started the ranks (join_messages.h).
#pragma once
#include <memory>

#include "harness/trial/messages.h"
#include "harness/trial/rank_link.h"

namespace harness {

// What a rank keeps until its end: the store in which the others may still be looking for rank 0.
class JoinedStore {
 public:
  JoinedStore();
  ~JoinedStore();

  // Meets and prepares as told, and returns the job. Throws fsdp::CommError, fsdp::EnvironmentError,
  // fsdp::TimeoutError.
  RankJob receive_job(RankLink& link);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace harness
