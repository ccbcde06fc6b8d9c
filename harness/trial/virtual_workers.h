// VirtualWorkers: rank programs that stay, and answer one virtual case after the other. The first case of a worker pays
// for its start (0.3 s). They end with the pool.
#pragma once
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "harness/trial/rank_processes.h"

namespace harness {

// How many workers this machine carries at once: one a core, and no more than half of its memory holds.
std::size_t most_virtual_workers();

// Starts processes on one thread that lasts as long as this. The kernel ends a rank when the thread that started it
// ends (PR_SET_PDEATHSIG counts threads), and a worker outlives the thread that first asked for it.
class WorkerStarter {
 public:
  WorkerStarter();
  ~WorkerStarter();
  WorkerStarter(const WorkerStarter&) = delete;
  WorkerStarter& operator=(const WorkerStarter&) = delete;
  // Waits for the start; throws what it throws. Thread-safe.
  std::unique_ptr<RankProcesses> start(const LaunchOptions& options);

 private:
  using Task = std::packaged_task<std::unique_ptr<RankProcesses>()>;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool ends_ = false;
  std::thread thread_;
};

class VirtualWorkers {
 public:
  static VirtualWorkers& instance();

  // A worker that is idle, or a new one. It belongs to the caller, who gives it back if it is well. Thread-safe. Throws
  // fsdp::EnvironmentError when the program cannot be started.
  std::unique_ptr<RankProcesses> take(const std::string& program);
  void give_back(const std::string& program, std::unique_ptr<RankProcesses> worker);

 private:
  struct Idle {
    std::string program;
    std::unique_ptr<RankProcesses> worker;
  };
  WorkerStarter starter_;  // before the workers: it ends after them
  std::mutex mutex_;
  std::vector<Idle> idle_;
};

}  // namespace harness
