// RankProcesses: W processes of one program in a process group of their own, each with a control socket, watched from
// one thread. Nothing of them outlives the object: the destructor ends and reaps them all, and each asks the kernel to
// be killed should the thread that made it die (PR_SET_PDEATHSIG), so that kill -9 of the launcher leaves nothing
// either.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/trial/line_socket.h"
#include "harness/trial/rank_cores.h"
#include "harness/trial/rank_group.h"

namespace harness {

// Numbers of the descriptors that a rank inherits, beside 0 (/dev/null), 1 and 2 (its log).
inline constexpr int kControlFd = 3;
inline constexpr int kSharedMemoryFd = 4;

struct LaunchOptions {
  std::string program;                 // absolute, or looked up in PATH
  std::vector<std::string> arguments;  // before --control-fd
  int count = 1;
  int first_rank = 0;         // of those started here: numbers the logs
  std::string log_dir;        // rankN.log in it, created if absent; empty: logs stay in memory
  int shared_memory_fd = -1;  // inherited by every rank as kSharedMemoryFd; stays the caller's
  RankCores cores;            // by place; empty: where the system puts them
};

class RankProcesses final : public RankGroup {
 public:
  // Starts `program [arguments] --control-fd 3`. Throws fsdp::EnvironmentError when the program cannot be started.
  explicit RankProcesses(const LaunchOptions& options);
  ~RankProcesses() override;
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  int count() const override { return static_cast<int>(ranks_.size()); }
  pid_t pid(int rank) const override { return ranks_.at(rank).pid; }
  // Whether every rank was given the cores of the options, and none was refused them.
  bool on_own_cores() const { return on_own_cores_; }
  bool ended(int rank) const { return ranks_.at(rank).ended; }
  void send(int rank, const std::string& line) override { ranks_.at(rank).control.send(line); }
  std::vector<RankUpdate> wait(fsdp::Nanos deadline) override { return wait(deadline, -1); }
  // The same; returns too when there is something to read at `other`.
  std::vector<RankUpdate> wait(fsdp::Nanos deadline, int other);
  void finish(fsdp::Nanos grace) noexcept override;
  // SIGTERM, after `grace` SIGKILL, to the whole process group; reaps all.
  void terminate(fsdp::Nanos grace) noexcept override;
  std::string log_tail(int rank, std::size_t bytes = 4096) const override;
  ProcessSight sight(int rank) const override { return sight_of(pid(rank)); }

 private:
  struct Rank {
    pid_t pid = -1;
    LineSocket control;
    Fd log;
    bool ended = false;  // seen, and reported or about to be; a zombie until terminate()
  };
  void start(const LaunchOptions& options, int rank);
  void receive(int rank, std::vector<RankUpdate>& updates);
  void look_for_ends(std::vector<RankUpdate>& updates);
  void close_sockets() noexcept;
  bool all_ended() noexcept;
  void wait_for_ends(fsdp::Nanos deadline) noexcept;

  std::vector<Rank> ranks_;
  pid_t group_ = -1;
  const std::int64_t oom_kills_;  // of the host, when the ranks were started
  bool reaped_ = false;
  bool on_own_cores_ = false;
};

}  // namespace harness
