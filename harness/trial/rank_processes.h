// RankProcesses: W processes of one program in a process group of their own, each with a control socket, watched from
// one thread. Nothing of them outlives the object: the destructor ends and reaps them all, and each asks the kernel to
// be killed should the thread that made it die (PR_SET_PDEATHSIG), so that kill -9 of the launcher leaves nothing
// either.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

// A file descriptor with an owner. Movable; closes on destruction.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// Numbers of the descriptors that a rank inherits, beside 0 (/dev/null), 1 and 2 (its log).
inline constexpr int kControlFd = 3;
inline constexpr int kSharedMemoryFd = 4;
inline constexpr int kListenFd = 5;

struct LaunchOptions {
  std::string program;  // absolute, or looked up in PATH
  int count = 1;
  std::string log_dir;        // rankN.log in it, created if absent; empty: logs stay in memory
  int shared_memory_fd = -1;  // inherited by every rank as kSharedMemoryFd; stays the caller's
  int listen_fd = -1;         // inherited by rank 0 as kListenFd; stays the caller's
};

struct RankUpdate {
  enum class Kind {
    kLine,    // a line from its control socket
    kClosed,  // its control socket has closed
    kEnded,   // the process has ended; comes after all its lines
  } kind;
  int rank;
  std::string line;
  int wait_status = 0;  // kEnded: as waitpid gives it
};

class RankProcesses {
 public:
  // Starts `program --control-fd 3`. Throws fsdp::EnvironmentError when the program cannot be started.
  explicit RankProcesses(const LaunchOptions& options);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  int count() const { return static_cast<int>(ranks_.size()); }
  pid_t pid(int rank) const { return ranks_.at(rank).pid; }
  bool ended(int rank) const { return ranks_.at(rank).ended; }
  void send(int rank, const std::string& line);  // a rank that is gone is no error: its end will be reported
  // Everything that happened since the last call; waits for something until `deadline` (steady clock).
  std::vector<RankUpdate> wait(fsdp::Nanos deadline);
  // The good end: closes the sockets, which ranks take as the word to end, and reaps them; terminate() after `grace`.
  void finish(fsdp::Nanos grace) noexcept;
  // Ends what still runs: SIGTERM, after `grace` SIGKILL, to the whole group; reaps all. Idempotent.
  void terminate(fsdp::Nanos grace) noexcept;
  // The end of what the rank wrote to stdout and stderr, at most `bytes`.
  std::string log_tail(int rank, std::size_t bytes = 4096) const;

 private:
  struct Rank {
    pid_t pid = -1;
    Fd control, log;
    std::string received;  // an unfinished line
    bool ended = false;    // seen, and reported or about to be; a zombie until terminate()
  };
  void start(const LaunchOptions& options, int rank);
  void receive(int rank, std::vector<RankUpdate>& updates);
  void look_for_ends(std::vector<RankUpdate>& updates);
  void close_sockets() noexcept;
  bool all_ended() noexcept;
  void wait_for_ends(fsdp::Nanos deadline) noexcept;

  std::vector<Rank> ranks_;
  pid_t group_ = -1;
  bool reaped_ = false;
};

}  // namespace harness
