// VirtualWorkers: rank programs that stay, and answer one virtual case after the other. The first case of a worker pays
// for its start (0.3 s). They end with the pool.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "harness/trial/rank_processes.h"

namespace harness {

// How many workers this machine carries at once: one a core, and no more than half of its memory holds.
std::size_t most_virtual_workers();

class VirtualWorkers {
 public:
  static VirtualWorkers& instance();

  // A worker that is idle, or a new one. It belongs to the caller, who gives it back if it is well. Thread-safe. Throws
  // fsdp::EnvironmentError when the program cannot be started.
  std::unique_ptr<RankProcesses> take(const std::string& program, const std::string& log_dir);
  void give_back(const std::string& program, std::unique_ptr<RankProcesses> worker);

 private:
  struct Idle {
    std::string program;
    std::unique_ptr<RankProcesses> worker;
  };
  std::mutex mutex_;
  std::vector<Idle> idle_;
};

}  // namespace harness
