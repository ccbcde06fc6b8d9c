#include "harness/trial/join.h"

#include <unistd.h>

#include <exception>
#include <memory>
#include <thread>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "fsdp/core/seconds.h"
#include "harness/sweep/text.h"
#include "harness/trial/environment.h"
#include "harness/trial/joined_ranks.h"
#include "harness/trial/meeting.h"
#include "harness/trial/messages.h"
#include "harness/trial/pytorch_rank.h"
#include "harness/trial/rank_processes.h"
#include "harness/trial/rendezvous.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;
constexpr fsdp::Nanos kTick = 100 * kMillisecond;
constexpr fsdp::Nanos kEndGrace = 2000 * kMillisecond, kTermGrace = 300 * kMillisecond;
constexpr fsdp::Nanos kLeaderSlack = 3000 * kMillisecond;  // of a leader that says nothing, beyond step_timeout
constexpr int kInterrupted = 130;

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

RankIdentity identity_of(const RankPlace& place, const CaseSettings& settings) {
  RankIdentity i;
  i.rank = place.rank;
  i.host = place.node.empty() ? host_name() : place.node;
  i.pid = getpid();
  i.local_rank = place.local_rank;
  i.device = settings.device == DeviceKind::kCuda ? "cuda:" + std::to_string(place.local_rank)
                                                  : setting_text(settings, "device");
  i.version = shardscope_version() + " " + git_revision();
  i.settings = all_settings(settings);
  for (const auto& f : files_of(settings)) i.settings.emplace_back(f->path, "file " + hex(text_hash(f->text), 12));
  std::string all;
  for (const auto& [name, text] : i.settings) all += name + "=" + text + "\n";
  i.settings_hash = hex(text_hash(all), 12);
  return i;
}

// One process of the run: its rank program, and its connection to the leader.
class Joiner {
 public:
  Joiner(const RankPlace& place, const std::string& secret, const CaseSettings& settings, const JoinOptions& options)
      : place_(place),
        settings_(settings),
        options_(options),
        patience_(settings.step_timeout),
        meeting_(meeting_of(place, secret)),
        pytorch_(pytorch_ranks_of(settings)),
        program_(launch_options(place, options, pytorch_.get())),
        leader_(meet_leader(meeting_, secret, fsdp::steady_now() + patience_, [this] { return !stopped(); })) {
    leader_.send(to_json_line(Hello{identity_of(place_, settings_), local_end(leader_.fd()).interface}));
  }

  int run() {
    heard_ = fsdp::steady_now();
    while (true) {
      for (const RankUpdate& u : program_.wait(fsdp::steady_now() + kTick, leader_.fd())) pass_on(u);
      for (const std::string& l : leader_.receive()) {
        heard_ = fsdp::steady_now();
        if (const auto text = refusal_from_json(l)) throw fsdp::ConfigError(*text);
        if (const auto code = end_from_json(l)) return end(*code);
        take(l);
      }
      if (stopped()) return end(kInterrupted);
      if (!leader_.open()) throw fsdp::CommError("[launch] rank 0 has gone away; its own words say why");
      if (fsdp::steady_now() - heard_ > patience_ + kLeaderSlack) give_leader_up();
    }
  }

 private:
  static LaunchOptions launch_options(const RankPlace& place, const JoinOptions& options, const PytorchRanks* pytorch) {
    LaunchOptions launch;
    launch.program = options.rank_program.empty() ? default_rank_program() : options.rank_program;
    launch.log_dir = options.log_dir;
    launch.first_rank = place.rank;
    if (pytorch != nullptr) pytorch->set_program(launch);
    return launch;
  }

  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  void take(const std::string& line) {
    if (const auto p = preparation_from_json(line); p && p->leader_host == identity_of(place_, settings_).host)
      leader_pid_ = static_cast<pid_t>(p->leader_pid);
    static const std::string report = to_json_line(RankCommand::kReport);
    if (line == report) leader_.send(seen_line(program_.sight(0)), patience_);
    program_.send(0, line);
  }

  void pass_on(const RankUpdate& u) {
    if (u.kind == RankUpdate::Kind::kLine) leader_.send(u.line, patience_);
    if (u.kind == RankUpdate::Kind::kEnded)
      leader_.send(to_json_line(RankEnd{u.wait_status, u.host_oom, program_.log_tail(0)}), patience_);
  }

  // The leader asks for reports four times within the time limit at least.
  [[noreturn]] void give_leader_up() {
    program_.terminate(kTermGrace);
    const bool here = leader_pid_ > 0;
    const bool is_stopped = here && sight_of(leader_pid_).stopped;
    if (here) end_if_stopped(leader_pid_);
    throw fsdp::CommError("[launch] rank 0 has said nothing for " + fsdp::seconds(patience_ + kLeaderSlack) +
                          (is_stopped ? ": its process was stopped (SIGSTOP)"
                                      : "; its process is stopped, or the network to it is broken"));
  }

  int end(int code) {
    if (code == 0) {
      program_.finish(kEndGrace);
    } else {
      program_.terminate(kTermGrace);
    }
    return code;
  }

  const RankPlace& place_;
  const CaseSettings& settings_;
  const JoinOptions& options_;
  const fsdp::Nanos patience_;
  const Meeting meeting_;
  std::unique_ptr<PytorchRanks> pytorch_;  // null: a rank of shardscope
  RankProcesses program_;
  LineSocket leader_;
  fsdp::Nanos heard_ = 0;  // of the leader
  pid_t leader_pid_ = 0;   // on this host; 0: it runs elsewhere
};

// Rank 0's own rank, joined on a thread of its own.
class OwnRank {
 public:
  OwnRank(const RankPlace& place, const std::string& secret, const CaseSettings& settings, const TrialOptions& options)
      : options_{options.rank_program, options.log_dir, &stop_}, thread_([&place, secret, &settings, this] {
          try {
            Joiner(place, secret, settings, options_).run();
          } catch (...) {
            error_ = std::current_exception();
          }
          over_.store(true, std::memory_order_release);
        }) {}
  ~OwnRank() {
    stop_.store(true);
    thread_.join();
  }
  OwnRank(const OwnRank&) = delete;
  OwnRank& operator=(const OwnRank&) = delete;

  void rethrow() const {
    if (over_.load(std::memory_order_acquire) && error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> stop_{false}, over_{false};
  std::exception_ptr error_;
  const JoinOptions options_;
  std::thread thread_;
};

void refuse_what_cannot_join(const RankPlace& place, const CaseSettings& settings) {
  check_master(place);
  if (settings.device == DeviceKind::kVirtual)
    throw fsdp::ConfigError("[device] the virtual world stands for all ranks in one process; start shardscope alone");
  if (settings.device == DeviceKind::kCuda && settings.wire)
    throw fsdp::ConfigError("[wire] one GPU stands for all ranks of an emulated network; start shardscope alone");
}

// Across hosts Gloo, else what the settings say.
Rendezvous rendezvous_of(const JoinedRanks& ranks, const CaseSettings& settings) {
  const bool across = ranks.hosts() > 1;
  if (across && settings.collectives == CollectivesKind::kLocal)
    throw fsdp::ConfigError("[collectives] local ranks share the memory of one host, and these run on " +
                            ranks.hosts_text() + "; use --collectives gloo");
  if (!across) return make_rendezvous(settings);
  Rendezvous r;
  const std::string& home = ranks.rank(0).hello.identity.host;
  for (int i = 0; i < ranks.count(); ++i)
    if (ranks.rank(i).hello.identity.host != home) r.host = ranks.rank(i).address;
  return r;
}

std::string interface_of(const std::string& address) {
  // A connection to one's own address comes from that address.
  const Listener probe = try_to_listen(address, 0);
  return local_end(try_to_connect(address, probe.port, fsdp::steady_now() + kTick).get()).interface;
}

void give_jobs(JoinedRanks& ranks, const CaseSettings& settings, const Rendezvous& r) {
  const std::string& home = ranks.rank(0).hello.identity.host;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    RankPreparation p;
    if (r.shared_memory.open())
      p.shared_memory = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(r.shared_memory.get());
    const Hello& hello = ranks.rank(rank).hello;
    p.leader_pid = getpid();
    p.leader_host = home;
    if (ranks.hosts() > 1) p.interface = hello.identity.host == home ? interface_of(r.host) : hello.interface;
    ranks.send(rank, to_json_line(p));
    RankJob job = rank_job(settings, r, rank);
    job.local_rank = hello.identity.local_rank;
    ranks.send(rank, job_line(job));
  }
}
}  // namespace

int follow_trial(const RankPlace& place, const std::string& secret, const CaseSettings& settings,
                 const JoinOptions& options) {
  refuse_what_cannot_join(place, settings);
  try {
    return Joiner(place, secret, settings, options).run();
  } catch (const fsdp::CommError&) {
    if (options.stop != nullptr && options.stop->load()) return kInterrupted;
    throw;
  }
}

CaseRecord lead_trial(const RankPlace& place, const std::string& secret, const CaseSettings& settings,
                      const TrialOptions& options) {
  refuse_what_cannot_join(place, settings);
  const fsdp::Nanos deadline = fsdp::steady_now() + settings.step_timeout;
  const Meeting meeting = meeting_of(place, secret);
  RankGathering gathering(place.world, secret, meeting.run, listen_at(meeting, place));
  const OwnRank own(place, secret, settings, options);
  std::unique_ptr<JoinedRanks> ranks = gathering.gather(
      deadline, [&] { own.rethrow(); }, options.stop);
  if (!ranks) {
    CaseRecord record;
    record.reason = "interrupted";
    return record;
  }
  try {
    check_world(place, settings.world);
    const std::string contract = place.contract, hosts = ranks->hosts_text();
    const Rendezvous rendezvous = rendezvous_of(*ranks, settings);
    give_jobs(*ranks, settings, rendezvous);
    TrialOptions joined = options;
    joined.ranks = [&] { return std::move(ranks); };
    CaseRecord record = run_trial(settings, joined);
    record.environment["launched_by"] = contract;
    record.environment["hosts"] = hosts;
    return record;
  } catch (const fsdp::ConfigError& e) {
    if (ranks)
      for (int rank = 0; rank < ranks->count(); ++rank) ranks->send(rank, refusal_line(e.what()));
    throw;
  }
}

}  // namespace harness
