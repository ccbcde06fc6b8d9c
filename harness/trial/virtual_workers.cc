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

VirtualWorkers& VirtualWorkers::instance() {
  static VirtualWorkers workers;
  return workers;
}

std::unique_ptr<RankProcesses> VirtualWorkers::take(const std::string& program, const std::string& log_dir) {
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
  launch.log_dir = log_dir;
  return std::make_unique<RankProcesses>(launch);
}

void VirtualWorkers::give_back(const std::string& program, std::unique_ptr<RankProcesses> worker) {
  const std::lock_guard lock(mutex_);
  idle_.push_back({program, std::move(worker)});
}

}  // namespace harness
