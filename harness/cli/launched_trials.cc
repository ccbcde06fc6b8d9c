#include "harness/cli/launched_trials.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "fsdp/core/escape.h"
#include "fsdp/core/files.h"
#include "harness/store/store.h"
#include "harness/store/whole_file.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"
#include "harness/trial/handshake.h"
#include "harness/trial/run_secret.h"

extern char** environ;

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
constexpr fsdp::Nanos kPoll = 20'000'000, kStartUp = 60'000'000'000, kGrace = 10'000'000'000;

std::string this_program() { return fs::read_symlink("/proc/self/exe").string(); }

struct Ended {
  int wait_status = 0;
  bool in_time = true, stopped = false;
};

// Waits for the step; past its time, or when the sweep is stopped, it gets SIGINT, then SIGKILL.
Ended wait_for(pid_t pid, fsdp::Nanos timeout, const std::atomic<bool>* stop) {
  Ended e;
  fsdp::Nanos deadline = fsdp::steady_now() + timeout;
  bool asked = false;
  while (::waitpid(pid, &e.wait_status, WNOHANG) == 0) {
    const bool late = fsdp::steady_now() >= deadline;
    if (late && asked) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, &e.wait_status, 0);
      break;
    }
    e.stopped = e.stopped || (stop && stop->load());
    if (!asked && (late || e.stopped)) {
      e.in_time = !late;
      ::kill(-pid, SIGINT);
      asked = true;
      deadline = fsdp::steady_now() + kGrace;
    }
    fsdp::sleep_until(fsdp::steady_now() + kPoll);
  }
  return e;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// This process's own, with a secret for the ranks of one step (trial/run_secret.h). A template's program may carry a
// user's own variable to other hosts and ours not: where there is one, it stays.
std::vector<std::string> environment_of_step(const Launcher& launcher) {
  const std::string name = std::string(kSecretVariable) + "=";
  const bool given = is_set(kSecretVariable) || is_set(kSecretFileVariable);
  const bool fresh = launcher.kind != Launcher::Kind::kTemplate || !given;
  std::vector<std::string> out;
  if (fresh) out.push_back(name + random_hex());
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (!fresh || std::strncmp(*entry, name.c_str(), name.size()) != 0) out.emplace_back(*entry);
  return out;
}

pid_t start(const std::vector<std::string>& words, const std::vector<std::string>& environment,
            const std::string& log) {
  ::unlink(log.c_str());  // what is there may be a link to a file of somebody
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& e : environment) envp.push_back(const_cast<char*>(e.c_str()));
  envp.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    throw fsdp::EnvironmentError(fmt::format(
        "[--launcher] {} cannot be started: {}; install it, or use --launcher local", words[0], std::strerror(error)));
  return pid;
}

CaseRecord failed(Status status, const std::string& reason) {
  CaseRecord r;
  r.status = status;
  r.reason = reason;
  return r;
}

// The last line of a log; of this program rather than of the launcher, which only says that it failed.
std::string last_words(const std::string& log) {
  std::string last, ours;
  for (const std::string& line : split(read_small_file(log, std::size_t{1} << 24, "a log"), '\n')) {
    if (!line.empty()) last = line;
    if (const auto at = line.find("shardscope: "); at != std::string::npos) ours = line.substr(at);
  }
  return (ours.empty() ? last : ours).substr(0, 300);
}

// The request asks for one process that starts the ranks, or for one process a rank. The processes of a node share all
// of its cores: a launcher's default is one core a process, which all ranks of the process would have to share.
LaunchRequest request_of(const CaseSettings& c, int nodes, std::vector<std::string> command) {
  LaunchRequest r{1, 1, 0, case_id(c), std::move(command)};
  if (nodes > 1 && c.world > 1 && c.device != DeviceKind::kVirtual) {
    r.world = c.world;
    r.ranks_per_node = (c.world + nodes - 1) / nodes;
  }
  const char* cpus = std::getenv("SLURM_CPUS_ON_NODE");
  if (cpus != nullptr) r.cpus_per_rank = std::max(1, std::atoi(cpus) / r.ranks_per_node);
  return r;
}

CaseRecord run_step(const Launcher& launcher, const std::string& directory, int nodes, const CaseSettings& c,
                    const CasePlan& plan) {
  const std::string id = case_id(c);
  const fs::path step = fs::path(directory) / "steps" / id, log = fs::path(plan.log_dir) / "step.log";
  const fsdp::Folder steps = fsdp::Folder::open(directory).inner("steps");  // no link
  fs::remove_all(step);
  steps.inner(id);
  const std::string spec = (step / "case.yaml").string(), out = (step / "out").string();
  write_file(spec, one_case_spec(c, plan));
  const LaunchRequest request = request_of(c, nodes, {this_program(), "sweep", spec, "-o", out});
  const pid_t pid = start(launch_command(launcher, request), environment_of_step(launcher), log.string());
  const Ended ended = wait_for(pid, (plan.timeout > 0 ? plan.timeout : kStartUp * 60) + kStartUp, plan.stop);
  if (ended.stopped) return failed(Status::kSkipped, "interrupted");
  if (Store::exists(out)) {
    Store store = Store::open(out);
    const auto statuses = store.statuses();
    if (!statuses.empty()) {
      CaseRecord r = store.read_case(statuses.front().first);
      fs::remove_all(step);
      return r;
    }
  }
  if (!ended.in_time) return failed(Status::kTimeout, "the job step did not end in its time");
  // Whatever becomes of a case is a row; a step without one was ended from outside, or never began.
  CaseRecord r =
      failed(Status::kCrashed,
             fmt::format("the job step left no result ({} {}): {}", WIFEXITED(ended.wait_status) ? "exit" : "signal",
                         WIFEXITED(ended.wait_status) ? WEXITSTATUS(ended.wait_status) : WTERMSIG(ended.wait_status),
                         last_words(log.string())));
  r.environment[kPassingTrouble] = "the job step";
  return r;
}

}  // namespace

std::string one_case_spec(const CaseSettings& settings, const CasePlan& plan) {
  std::string spec = "name: step\n";
  const Files files = files_of(settings);
  if (!files.empty()) spec += "files:\n";
  for (const auto& f : files) spec += fmt::format("  {}: {}\n", fsdp::yaml_string(f->path), fsdp::yaml_string(f->text));
  spec += "base:\n";
  for (const SettingRow& row : setting_table())
    if (const std::string text = row.print(settings); text != row.standard)
      spec += fmt::format("  {}: {}\n", row.name, fsdp::yaml_string(text));
  if (spec.back() == '\n' && spec.rfind("base:\n") == spec.size() - 6)
    spec += "  world: " + std::to_string(settings.world) + "\n";
  spec += fmt::format("repeat: {{min: {}, max: {}, relative_ci: '{}%', time: {}}}\n", plan.repeat.min, plan.repeat.max,
                      plan.repeat.relative_ci * 100, exact_nanos(plan.repeat.time));
  spec += fmt::format("trace: {}\n", plan.trace ? "one" : "none");
  if (plan.timeout > 0) spec += "timeout: " + exact_nanos(plan.timeout) + "\n";
  return spec;
}

RunCase launched_trials(const Launcher& launcher, const std::string& directory, int nodes) {
  const std::string absolute = fs::absolute(directory).string();
  return [launcher, absolute, nodes](const CaseSettings& c, const CasePlan& plan) {
    return run_step(launcher, absolute, nodes, c, plan);
  };
}

}  // namespace harness::cli
