// RankWorld: everything that one rank of a trial needs, built from its job: device, transports, collectives, plan,
// model, data, optimizer. The host world; virtual_world.h is the virtual one. Used from one thread, but for abort().
#pragma once
#include <map>
#include <memory>
#include <string>

#include "fsdp/comm/rendezvous.h"
#include "harness/trial/messages.h"
#include "harness/trial/rank_progress.h"
#include "harness/workload/trainer.h"

namespace harness {

class RankWorld {
 public:
  // Meets the other ranks on the way. Throws ConfigError, EnvironmentError, OutOfMemory, CommError, TimeoutError.
  // `rendezvous`: null when the ranks share memory; outlives the world.
  RankWorld(const RankJob& job, RankProgress& progress, fsdp::Rendezvous* rendezvous = nullptr);
  ~RankWorld();
  RankWorld(const RankWorld&) = delete;
  RankWorld& operator=(const RankWorld&) = delete;

  // All ranks have come here.
  void barrier();
  // One training step. At its end ranks compare the hash of what they have issued: CommError that names both sides.
  void step();
  // Losses and norms of the steps so far are in the result, those of later ones are not.
  void stop_keeping_numbers();
  // The steps from here on are recorded, numbered from 0.
  void begin_trace();
  RankResult result();
  // Ends the waits of the other ranks for this one. Thread-safe.
  void abort(const std::string& reason) noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

TrainerSettings trainer_settings_of(const CaseSettings& settings, const fsdp::UnitPlan& plan);

// What one step adds to a scheduler's counts.
PrefetchCounts prefetch_counts(const fsdp::SchedulerStats& before, const fsdp::SchedulerStats& after);

// LibTorch's version, the instruction sets in use, threads.
std::map<std::string, std::string> torch_environment();

}  // namespace harness
