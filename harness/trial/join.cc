#include "harness/trial/join.h"

#include <sys/random.h>
#include <unistd.h>

#include <exception>
#include <thread>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "harness/sweep/text.h"
#include "harness/trial/environment.h"
#include "harness/trial/joined_ranks.h"
#include "harness/trial/messages.h"
#include "harness/trial/rank_processes.h"
#include "harness/trial/rendezvous.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;
constexpr fsdp::Nanos kTick = 100 * kMillisecond;
constexpr fsdp::Nanos kEndGrace = 2000 * kMillisecond, kTermGrace = 300 * kMillisecond;
constexpr fsdp::Nanos kPatience = 30'000 * kMillisecond;  // of a leader that does not read
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
  i.device = settings.device == "cuda" ? "cuda:" + std::to_string(place.local_rank) : settings.device;
  i.settings_hash = hex(text_hash(to_json(settings)), 12);
  i.version = shardscope_version() + " " + git_revision();
  i.settings = all_settings(settings);
  return i;
}

// What rank 0 has to say at the store, and its program to inherit.
struct Leading {
  std::string says;
  int listen_fd = -1;
};

// One process of the run: its rank program, and its connection to the leader.
class Joiner {
 public:
  Joiner(const RankPlace& place, const CaseSettings& settings, const JoinOptions& options, const Leading& leading)
      : place_(place),
        settings_(settings),
        options_(options),
        deadline_(fsdp::steady_now() + step_timeout_of(settings)),
        address_(address_of(place.master_addr, "MASTER_ADDR")),
        program_(launch_options(place, options, leading)) {
    meet(leading.says);
  }

  int run() {
    while (true) {
      for (const RankUpdate& u : program_.wait(fsdp::steady_now() + kTick, leader_.fd())) pass_on(u);
      for (const std::string& l : leader_.receive()) {
        if (const auto text = refusal_from_json(l)) throw fsdp::ConfigError(*text);
        if (const auto code = end_from_json(l)) return end(*code);
        program_.send(0, l);
      }
      if (stopped()) return end(kInterrupted);
      if (!leader_.open()) throw fsdp::CommError("[launch] rank 0 has gone away; its own words say why");
    }
  }

 private:
  static LaunchOptions launch_options(const RankPlace& place, const JoinOptions& options, const Leading& leading) {
    LaunchOptions launch;
    launch.program = options.rank_program.empty() ? default_rank_program() : options.rank_program;
    launch.log_dir = options.log_dir;
    launch.first_rank = place.rank;
    launch.listen_fd = leading.listen_fd;
    return launch;
  }

  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  void meet(const std::string& says) {
    const bool serves = place_.rank == 0 && !place_.store_is_served;
    program_.send(0, to_json_line(RankMeeting{place_.rank, address_, place_.master_port, serves,
                                              "shardscope/leader" + place_.attempt, says, step_timeout_of(settings_)}));
    const std::string met = answer();
    const auto space = met.find(' ');
    const auto port = whole_number(met.substr(0, space));
    if (!port || space == std::string::npos)
      throw fsdp::CommError("[launch] the store at " + address_ + " holds \"" + met.substr(0, 40) +
                            "\" for this run; is it another program's?");
    leader_ = LineSocket(connect_to(address_, static_cast<int>(*port), deadline_));
    leader_.send(
        to_json_line(Hello{met.substr(space + 1), identity_of(place_, settings_), local_end(leader_.fd()).interface}));
  }

  // Of the rank program at the store.
  std::string answer() {
    const fsdp::Nanos until = deadline_ + kEndGrace;  // it knows more, and speaks first
    while (fsdp::steady_now() < until) {
      if (stopped()) throw fsdp::CommError("[launch] interrupted before the ranks had met");
      for (const RankUpdate& u : program_.wait(fsdp::steady_now() + kTick)) {
        if (u.kind == RankUpdate::Kind::kEnded)
          throw fsdp::CommError("[launch] the rank program ended before the ranks had met; its log ends: " +
                                program_.log_tail(0, 300));
        if (u.kind != RankUpdate::Kind::kLine) continue;
        const RankEvent e = rank_event_from_json(u.line);
        if (e.kind == RankEvent::Kind::kMet) return e.where;
        if (place_.rank == 0) throw fsdp::EnvironmentError(e.reason + " (MASTER_PORT)");
        throw fsdp::CommError(e.reason);
      }
    }
    throw fsdp::CommError("[launch] the ranks did not meet at " + address_ + ":" + std::to_string(place_.master_port) +
                          " within step_timeout " + settings_.step_timeout +
                          "; is rank 0 running there, and does every rank reach that address?");
  }

  void pass_on(const RankUpdate& u) {
    if (u.kind == RankUpdate::Kind::kLine) leader_.send(u.line, kPatience);
    if (u.kind == RankUpdate::Kind::kEnded)
      leader_.send(to_json_line(RankEnd{u.wait_status, u.host_oom, program_.log_tail(0)}), kPatience);
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
  const fsdp::Nanos deadline_;
  const std::string address_;
  RankProcesses program_;
  LineSocket leader_;
};

// Not to be guessed by a process that finds the port.
std::string fresh_token() {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value)
    throw fsdp::EnvironmentError("[launch] the system gives no random bytes");
  return hex(value, 16);
}

// Rank 0's own rank, joined on a thread of its own.
class OwnRank {
 public:
  OwnRank(const RankPlace& place, const CaseSettings& settings, const TrialOptions& options, const Leading& leading)
      : options_{options.rank_program, options.log_dir, &stop_}, thread_([&place, &settings, leading, this] {
          try {
            Joiner(place, settings, options_, leading).run();
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
  if (settings.device == "virtual")
    throw fsdp::ConfigError("[device] the virtual world stands for all ranks in one process; start shardscope alone");
  if (settings.device == "cuda" && wire_of(settings).on)
    throw fsdp::ConfigError("[wire] one GPU stands for all ranks of an emulated network; start shardscope alone");
}

// Across hosts Gloo, else what the settings say.
Rendezvous rendezvous_of(const JoinedRanks& ranks, const CaseSettings& settings, Listener store) {
  const bool across = ranks.hosts() > 1;
  if (across && settings.collectives == "local")
    throw fsdp::ConfigError("[collectives] local ranks share the memory of one host, and these run on " +
                            ranks.hosts_text() + "; use --collectives gloo");
  if (!across && !meets_at_store(settings)) return make_rendezvous(settings);
  Rendezvous r;
  r.listener = std::move(store.fd);
  r.port = store.port;
  const std::string& home = ranks.rank(0).hello.identity.host;
  for (int i = 0; i < ranks.count() && across; ++i)
    if (ranks.rank(i).hello.identity.host != home) r.host = ranks.rank(i).address;
  return r;
}

std::string interface_of(const std::string& address) {
  // A connection to one's own address comes from that address.
  const Listener probe = listen_everywhere();
  return local_end(connect_to(address, probe.port, fsdp::steady_now() + kTick).get()).interface;
}

void give_jobs(JoinedRanks& ranks, const CaseSettings& settings, const Rendezvous& r) {
  const std::string& home = ranks.rank(0).hello.identity.host;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    RankPreparation p;
    if (r.shared_memory.open())
      p.shared_memory = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(r.shared_memory.get());
    const Hello& hello = ranks.rank(rank).hello;
    if (ranks.hosts() > 1) p.interface = hello.identity.host == home ? interface_of(r.host) : hello.interface;
    ranks.send(rank, to_json_line(p));
    RankJob job = rank_job(settings, r, rank);
    job.local_rank = hello.identity.local_rank;
    ranks.send(rank, to_json_line(job));
  }
}
}  // namespace

int follow_trial(const RankPlace& place, const CaseSettings& settings, const JoinOptions& options) {
  refuse_what_cannot_join(place, settings);
  try {
    return Joiner(place, settings, options, {}).run();
  } catch (const fsdp::CommError&) {
    if (options.stop != nullptr && options.stop->load()) return kInterrupted;
    throw;
  }
}

CaseRecord lead_trial(const RankPlace& place, const CaseSettings& settings, const TrialOptions& options) {
  refuse_what_cannot_join(place, settings);
  const fsdp::Nanos deadline = fsdp::steady_now() + step_timeout_of(settings);
  const std::string token = fresh_token();
  RankGathering gathering(place.world, token);
  Listener store = listen_everywhere();
  const OwnRank own(place, settings, options, {std::to_string(gathering.port()) + " " + token, store.fd.get()});
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
    const Rendezvous rendezvous = rendezvous_of(*ranks, settings, std::move(store));
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
