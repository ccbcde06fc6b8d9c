#include "harness/trial/virtual_workers.h"

#include <unistd.h>

#include <algorithm>

#include "harness/trial/environment.h"

namespace harness {
namespace {
constexpr long kWorkerBytes = 256L << 20;  // LibTorch and a case: 130 MB and what a model of thousands of units needs
}

std::size_t most_virtual_workers() {
  const long memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
  return static_cast<std::size_t>(std::max(1L, std::min<long>(usable_cores(), memory / 2 / kWorkerBytes)));
}

WorkerStarter::WorkerStarter()
    : thread_([this] {
        std::unique_lock lock(mutex_);
        while (true) {
          changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
          if (tasks_.empty()) return;
          Task task = std::move(tasks_.front());
          tasks_.pop_front();
          lock.unlock();
          task();
          lock.lock();
        }
      }) {}

WorkerStarter::~WorkerStarter() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<RankProcesses> WorkerStarter::start(const LaunchOptions& options) {
  Task task([&options] { return std::make_unique<RankProcesses>(options); });
  std::future<std::unique_ptr<RankProcesses>> started = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
  return started.get();
}

VirtualWorkers& VirtualWorkers::instance() {
  static VirtualWorkers workers;
  return workers;
}

std::unique_ptr<RankProcesses> VirtualWorkers::take(const std::string& program) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(idle_.begin(), idle_.end(), [&](const Idle& i) { return i.program == program; });
    if (at != idle_.end()) {
      std::unique_ptr<RankProcesses> worker = std::move(at->worker);
      idle_.erase(at);
      return worker;
    }
  }
  LaunchOptions launch;
  launch.program = program;
  return starter_.start(launch);
}

void VirtualWorkers::give_back(const std::string& program, std::unique_ptr<RankProcesses> worker) {
  const std::lock_guard lock(mutex_);
  idle_.push_back({program, std::move(worker)});
}

}  // namespace harness
