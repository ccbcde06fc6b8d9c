#include "harness/trial/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;
constexpr int kErrorFd = 5;  // in the child until exec: where it says why exec failed
constexpr int kExecPatienceMs = 1000;
constexpr int kFirstPlacedFd = 20;  // the parent's ends lie above every number that the child assigns

[[noreturn]] void fail(const std::string& what) {
  throw fsdp::EnvironmentError("[trial] " + what + ": " + std::strerror(errno));
}

// Moves a descriptor out of the way of the numbers that a rank inherits.
Fd placed(int fd, const char* what) {
  if (fd < 0) fail(std::string("no ") + what + " for a rank");
  Fd low(fd);
  Fd high(fcntl(fd, F_DUPFD_CLOEXEC, kFirstPlacedFd));
  if (!high.open()) fail(std::string("no descriptor for the ") + what + " of a rank; raise `ulimit -n`");
  return high;
}

Fd open_log(const LaunchOptions& options, int rank) {
  if (options.log_dir.empty()) return placed(memfd_create("shardscope-log", MFD_CLOEXEC), "log");
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  const std::string path = options.log_dir + "/rank" + std::to_string(options.first_rank + rank) + ".log";
  unlink(path.c_str());  // what is there may be a link to a file of somebody
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) fail("cannot write " + path);
  return placed(fd, "log");
}

struct ChildDescriptors {
  int null, log, control, shared_memory, error;
};
struct ChildCores {
  bool given = false;
  cpu_set_t set{};
};

// Processes that the kernel has ended for want of memory, of the host or of a control group, since the host started.
std::int64_t host_oom_kills() {
  std::ifstream in("/proc/vmstat");
  std::string name;
  for (std::int64_t n; in >> name >> n;)
    if (name == "oom_kill") return n;
  return 0;
}

bool give(int from, int to) { return from < 0 || dup2(from, to) >= 0; }

// Between fork and exec: async-signal-safe calls only, everything was allocated before.
[[noreturn]] void become_rank(const ChildDescriptors& d, const ChildCores& cores, pid_t launcher, pid_t group,
                              const char* program, char* const* argv) {
  setpgid(0, group);
  if (cores.given) sched_setaffinity(0, sizeof cores.set, &cores.set);  // refused: the rank runs where it may
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int s : {SIGINT, SIGTERM, SIGPIPE, SIGHUP, SIGCHLD, SIGQUIT}) signal(s, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(127);  // it died before the line above
  const bool given = give(d.null, 0) && give(d.log, 1) && give(d.log, 2) && give(d.control, kControlFd) &&
                     give(d.shared_memory, kSharedMemoryFd) && give(d.error, kErrorFd);
  if (d.shared_memory < 0) close(kSharedMemoryFd);
  if (given && fcntl(kErrorFd, F_SETFD, FD_CLOEXEC) == 0) {
    syscall(SYS_close_range, kErrorFd + 1, ~0U, 0);  // what other parts of the launcher may have left inheritable
    execvp(program, argv);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t n = write(kErrorFd, &error, sizeof error);
  _exit(127);
}
}  // namespace

RankProcesses::RankProcesses(const LaunchOptions& options) : oom_kills_(host_oom_kills()) {
  ranks_.reserve(options.count);
  on_own_cores_ = !options.cores.empty();
  try {
    for (int rank = 0; rank < options.count; ++rank) start(options, rank);
  } catch (...) {
    terminate(0);
    throw;
  }
}

RankProcesses::~RankProcesses() { terminate(0); }

void RankProcesses::start(const LaunchOptions& options, int rank) {
  Rank r;
  r.log = open_log(options, rank);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) fail("no control socket for a rank");
  Fd theirs = placed(pair[1], "control socket");
  r.control = LineSocket(placed(pair[0], "control socket"));
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) fail("no pipe for a rank");
  Fd error_in = placed(pipe_ends[0], "pipe");
  Fd error_out = placed(pipe_ends[1], "pipe");
  Fd null = placed(open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null");
  Fd memory;
  if (options.shared_memory_fd >= 0) memory = placed(dup(options.shared_memory_fd), "shared memory");

  ChildCores cores;
  if (cores.given = !options.cores.empty(); cores.given) {
    CPU_ZERO(&cores.set);
    for (const int core : options.cores.at(static_cast<std::size_t>(rank))) CPU_SET(core, &cores.set);
  }
  const ChildDescriptors d{null.get(), r.log.get(), theirs.get(), memory.get(), error_out.get()};
  std::vector<std::string> words = {options.program};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  words.insert(words.end(), {"--control-fd", std::to_string(kControlFd)});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t launcher = getpid(), group = group_ < 0 ? 0 : group_;
  r.pid = fork();
  if (r.pid < 0) fail("cannot fork a rank");
  if (r.pid == 0) become_rank(d, cores, launcher, group, argv[0], argv.data());
  if (group_ < 0) group_ = r.pid;
  setpgid(r.pid, group_);  // both sides do it: neither may come first
  ranks_.push_back(std::move(r));

  error_out.reset();
  // A child that is stopped before its exec says nothing: who watches the ranks will notice.
  pollfd p{error_in.get(), POLLIN, 0};
  int error = 0;
  const bool told = poll(&p, 1, kExecPatienceMs) > 0;
  if (told && read(error_in.get(), &error, sizeof error) == sizeof error) {
    errno = error;
    fail("cannot start the rank program " + options.program);
  }
  cpu_set_t now{};
  on_own_cores_ =
      on_own_cores_ && sched_getaffinity(ranks_.back().pid, sizeof now, &now) == 0 && CPU_EQUAL(&now, &cores.set) != 0;
}

void RankProcesses::close_sockets() noexcept {
  for (Rank& r : ranks_) r.control.close();
}

void RankProcesses::receive(int rank, std::vector<RankUpdate>& updates) {
  Rank& r = ranks_[rank];
  if (!r.control.open()) return;
  for (std::string& line : r.control.receive()) updates.push_back({RankUpdate::Kind::kLine, rank, std::move(line), 0});
  if (!r.control.open()) updates.push_back({RankUpdate::Kind::kClosed, rank, {}, 0});
}

// WNOWAIT: the dead stay zombies until terminate(), so that neither their pids nor the group's number are given away.
void RankProcesses::look_for_ends(std::vector<RankUpdate>& updates) {
  for (int rank = 0; rank < count(); ++rank) {
    Rank& r = ranks_[rank];
    siginfo_t info{};
    if (r.ended || waitid(P_PID, r.pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    r.ended = true;
    receive(rank, updates);
    const int status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
    const bool host_oom = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && host_oom_kills() > oom_kills_;
    updates.push_back({RankUpdate::Kind::kEnded, rank, {}, status, host_oom});
  }
}

std::vector<RankUpdate> RankProcesses::wait(fsdp::Nanos deadline, int other) {
  std::vector<RankUpdate> updates;
  while (true) {
    std::vector<pollfd> sockets;
    std::vector<int> owners;
    bool leaving = false;  // a socket has closed, its process has not ended yet: that is a matter of moments
    for (int rank = 0; rank < count(); ++rank) {
      if (ranks_[rank].control.open()) {
        sockets.push_back({ranks_[rank].control.fd(), POLLIN, 0});
        owners.push_back(rank);
      } else {
        leaving = leaving || !ranks_[rank].ended;
      }
    }
    if (other >= 0) sockets.push_back({other, POLLIN, 0});
    const fsdp::Nanos tick = leaving ? 2 * kMillisecond : 100 * kMillisecond;
    const fsdp::Nanos left = std::clamp<fsdp::Nanos>(deadline - fsdp::steady_now(), 0, tick);
    poll(sockets.data(), sockets.size(), static_cast<int>((left + kMillisecond - 1) / kMillisecond));
    for (std::size_t i = 0; i < owners.size(); ++i) {
      if (sockets[i].revents != 0) receive(owners[i], updates);
    }
    look_for_ends(updates);
    if (!updates.empty() || (other >= 0 && sockets.back().revents != 0) || fsdp::steady_now() >= deadline)
      return updates;
  }
}

bool RankProcesses::all_ended() noexcept {
  return std::all_of(ranks_.begin(), ranks_.end(), [](Rank& r) {
    siginfo_t info{};
    r.ended = r.ended || (waitid(P_PID, r.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0);
    return r.ended;
  });
}

void RankProcesses::wait_for_ends(fsdp::Nanos deadline) noexcept {
  while (!all_ended() && fsdp::steady_now() < deadline) fsdp::sleep_until(fsdp::steady_now() + kMillisecond);
}

void RankProcesses::finish(fsdp::Nanos grace) noexcept {
  close_sockets();
  wait_for_ends(fsdp::steady_now() + grace);
  terminate(grace);
}

void RankProcesses::terminate(fsdp::Nanos grace) noexcept {
  close_sockets();
  if (reaped_ || group_ < 0) return;
  if (grace > 0 && !all_ended()) {
    killpg(group_, SIGTERM);
    wait_for_ends(fsdp::steady_now() + grace);
  }
  killpg(group_, SIGKILL);  // also whatever the ranks may have started; the group's number is still ours (zombies)
  for (Rank& r : ranks_) {
    while (waitpid(r.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    r.ended = true;
  }
  reaped_ = true;
}

std::string RankProcesses::log_tail(int rank, std::size_t bytes) const {
  const int fd = ranks_.at(rank).log.get();
  struct stat info {};
  if (fstat(fd, &info) != 0) return {};
  const off_t begin = std::max<off_t>(0, info.st_size - static_cast<off_t>(bytes));
  std::string text(static_cast<std::size_t>(info.st_size - begin), '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), begin);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
  return text;
}

}  // namespace harness
