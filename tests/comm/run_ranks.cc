#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "tests/comm/transport_suite.h"

namespace fsdp::testing {
namespace {

std::string failure_of(int rank, const std::function<std::unique_ptr<Transport>(int)>& make,
                       const RankMain& rank_main) {
  std::unique_ptr<Transport> transport;
  try {
    transport = make(rank);
    rank_main(*transport);
    return "";
  } catch (const std::exception& e) {
    if (transport) transport->abort(e.what());  // peers need not wait for their deadline
    return "rank " + std::to_string(rank) + ": " + e.what();
  }
}

std::string read_all(int fd) {
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

void keep_failure(std::vector<std::string>& failures, std::string text) {
  if (!text.empty()) failures.push_back(std::move(text));
}

std::atomic<int>& counter(void* memory) { return *static_cast<std::atomic<int>*>(memory); }

}  // namespace

std::vector<std::string> run_threads(int world, const std::function<std::unique_ptr<Transport>(int)>& make,
                                     const RankMain& rank_main) {
  std::vector<std::string> texts(static_cast<std::size_t>(world)), failures;
  std::vector<std::thread> ranks;
  for (int r = 0; r < world; ++r) {
    ranks.emplace_back([&, r] { texts[static_cast<std::size_t>(r)] = failure_of(r, make, rank_main); });
  }
  for (auto& t : ranks) t.join();
  for (auto& t : texts) keep_failure(failures, std::move(t));
  return failures;
}

std::vector<std::string> run_processes(int world, const std::function<std::unique_ptr<Transport>(int)>& make,
                                       const RankMain& rank_main) {
  struct Child {
    pid_t pid;
    int out;
  };
  std::vector<Child> children;
  for (int r = 0; r < world; ++r) {
    int ends[2];
    require(pipe(ends) == 0, "a pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      const std::string text = failure_of(r, make, rank_main);
      const bool told = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      _exit(text.empty() && told ? 0 : 1);
    }
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<std::string> failures;
  for (const Child& c : children) {
    std::string text = read_all(c.out);
    close(c.out);
    int status = 0;
    waitpid(c.pid, &status, 0);
    if (text.empty() && status != 0) text = "process ended with status " + std::to_string(status);
    keep_failure(failures, std::move(text));
  }
  return failures;
}

SharedCounter::SharedCounter()
    : memory_(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  require(memory_ != MAP_FAILED, "shared memory");
}
SharedCounter::~SharedCounter() { munmap(memory_, 4096); }
void SharedCounter::add() { counter(memory_).fetch_add(1); }
void SharedCounter::wait_for(int n) const {
  while (counter(memory_).load() < n) sched_yield();
}

}  // namespace fsdp::testing
