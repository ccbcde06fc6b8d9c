#include "harness/trial/trial.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "harness/sweep/runtime_limits.h"
#include "harness/trial/assemble.h"
#include "harness/trial/case_units.h"
#include "harness/trial/messages.h"
#include "harness/trial/outcome.h"
#include "harness/trial/pytorch_rank.h"
#include "harness/trial/rank_cores.h"
#include "harness/trial/rank_processes.h"
#include "harness/trial/rank_watch.h"
#include "harness/trial/rendezvous.h"
#include "harness/trial/run_store.h"
#include "harness/trial/virtual_trial.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;
constexpr fsdp::Nanos kTick = 100 * kMillisecond;
constexpr fsdp::Nanos kCauseGrace =
    1000 * kMillisecond;  // how long peers' causes are collected after the first failure
constexpr fsdp::Nanos kReportGrace = 500 * kMillisecond;  // how long a silent rank may take to say where it is
constexpr fsdp::Nanos kEndGrace = 2000 * kMillisecond;    // how long a rank may take to end once its socket has closed
constexpr fsdp::Nanos kTermGrace = 300 * kMillisecond;
constexpr fsdp::Nanos kLongestRepeating = fsdp::Nanos{1} << 61;  // a sum stops there: one more length fits

// Empty: the system places the ranks.
RankCores rank_cores(const CaseSettings& settings, const TrialOptions& options) {
  if (!options.pin || options.ranks || settings.device != DeviceKind::kCpu) return {};
  return cores_of_ranks(physical_cores(allowed_cores()), settings.world);
}

// Leads one set of ranks through a trial.
class Trial {
 public:
  Trial(const CaseSettings& settings, const TrialOptions& options)
      : settings_(settings),
        options_(options),
        pytorch_(options.ranks ? nullptr : pytorch_ranks_of(settings)),
        ranks_(options.ranks ? options.ranks() : start_here(settings, options, pytorch_.get(), own_cores_)),
        watch_(*ranks_, settings.step_timeout),
        answers_(ranks_->count()) {}

  // Fills the record; returns when every rank has ended.
  void run(CaseRecord& record) {
    const fsdp::Nanos begin = fsdp::steady_now();
    if (own_cores_) record.environment["rank_cores"] = "own";
    deadline_ = options_.timeout > 0 ? begin + options_.timeout : INT64_MAX;
    tell_progress();
    while (!done_ && !outcome_) {
      watch_.ask_when_due();
      for (const RankUpdate& u : ranks_->wait(std::min(deadline_, fsdp::steady_now() + kTick))) take(u);
      if (options_.stop != nullptr && options_.stop->load()) {
        outcome_ = Outcome{Status::kSkipped, "interrupted", "", -1};
      } else if (!failures_.empty()) {
        outcome_ = settle();
      } else if (all_answered()) {
        advance();
      } else if (fsdp::steady_now() >= deadline_) {
        outcome_ = silent_ranks();
      } else if (!watch_.silent().empty()) {
        outcome_ = inactive_ranks();
      }
    }
    finish(record);
  }

 private:
  enum class Phase { kStarting, kRepeating, kFinishing };
  struct Answer {
    bool given = false;  // to what was asked last
    bool gone = false;   // failed, or ended
    fsdp::Nanos ns = 0;
    std::string where;
    std::optional<RankResult> result;
  };

  static std::unique_ptr<RankGroup> start_here(const CaseSettings& settings, const TrialOptions& options,
                                               const PytorchRanks* pytorch, bool& own_cores) {
    const Rendezvous rendezvous = make_rendezvous(settings);
    LaunchOptions launch;
    launch.program = options.rank_program.empty() ? default_rank_program() : options.rank_program;
    launch.count = settings.device == DeviceKind::kCuda && settings.wire ? 1 : settings.world;  // one GPU for all
    launch.log_dir = options.log_dir;
    launch.cores = rank_cores(settings, options);
    launch.shared_memory_fd = rendezvous.shared_memory.get();
    if (pytorch != nullptr) pytorch->set_program(launch);
    auto ranks = std::make_unique<RankProcesses>(launch);
    own_cores = ranks->on_own_cores();
    for (int rank = 0; rank < settings.world; ++rank) ranks->send(rank, job_line(rank_job(settings, rendezvous, rank)));
    return ranks;
  }

  bool all_answered() const {
    return std::all_of(answers_.begin(), answers_.end(), [](const Answer& a) { return a.given; });
  }

  void ask(RankCommand command) {
    for (int rank = 0; rank < ranks_->count(); ++rank) {
      answers_[rank].given = false;
      watch_.set_given(rank, false);
      ranks_->send(rank, to_json_line(command));
    }
    tell_progress();
  }

  void tell_progress() const {
    if (!options_.progress) return;
    TrialProgress p{doing(), static_cast<int>(samples_.size()), {}};
    for (int rank = 0; rank < ranks_->count(); ++rank) p.pids.push_back(ranks_->pid(rank));
    options_.progress(p);
  }

  std::string doing() const {
    if (phase_ == Phase::kStarting) return "while starting";
    if (phase_ == Phase::kFinishing) return options_.trace ? "in the traced repetition" : "while giving its result";
    return samples_.empty() ? "in the warm-up or the first repetition"
                            : "in repetition " + std::to_string(samples_.size() + 1);
  }

  void take(const RankUpdate& update) {
    Answer& answer = answers_[update.rank];
    if (update.kind == RankUpdate::Kind::kLine) {
      try {
        take_line(update.rank, answer, update.line);
      } catch (const fsdp::Error& e) {
        failures_.push_back({Status::kCrashed, update.rank, Failure::Kind::kReported, e.what(), "", ""});
      }
    } else if (update.kind == RankUpdate::Kind::kClosed && !answer.gone) {
      failures_.push_back({Status::kCrashed, update.rank, Failure::Kind::kClosed, "closed its connection " + doing(),
                           "", ranks_->log_tail(update.rank)});
    } else if (update.kind == RankUpdate::Kind::kEnded) {
      if (!answer.gone)
        failures_.push_back(
            failure_of_exit(update.rank, update.wait_status, doing(), ranks_->log_tail(update.rank), update.host_oom));
      answer.gone = true;
    }
    if (answer.gone) watch_.set_gone(update.rank);
  }

  void take_line(int rank, Answer& answer, const std::string& line) {
    if (watch_.take(rank, line)) return;
    if (const auto answers = store_.take(rank, line)) {
      for (const RunStore::Answer& a : *answers) ranks_->send(a.rank, a.line);
      return;
    }
    take(rank, answer, rank_event_from_json(line));
    watch_.set_given(rank, answer.given);
  }

  void take(int rank, Answer& answer, RankEvent event) {
    switch (event.kind) {
      case RankEvent::Kind::kReady:
        answer.given = phase_ == Phase::kStarting;
        break;
      case RankEvent::Kind::kRepetition:
        answer.given = phase_ == Phase::kRepeating;
        answer.ns = event.ns;
        break;
      case RankEvent::Kind::kResult:
        answer.given = phase_ == Phase::kFinishing;
        answer.result = std::move(event.result);
        break;
      case RankEvent::Kind::kWhere:
        answer.where = event.where;
        watch_.set_where(rank, event.where);
        break;
      case RankEvent::Kind::kFailed:
        answer.gone = true;
        failures_.push_back({event.status, rank, Failure::Kind::kReported, event.reason, event.cause,
                             event.status == Status::kCrashed ? ranks_->log_tail(rank) : "", event.where, event.held});
        break;
    }
  }

  void advance() {
    if (phase_ == Phase::kFinishing) {
      done_ = true;
      return;
    }
    if (phase_ == Phase::kStarting) {
      phase_ = Phase::kRepeating;
      return ask(RankCommand::kRepeat);
    }
    fsdp::Nanos slowest = 0;
    for (const Answer& a : answers_) slowest = std::max(slowest, a.ns);
    samples_.push_back(slowest / std::max(1, settings_.steps));
    repeating_ = std::min(repeating_ + slowest, kLongestRepeating);
    stop_ = repeat_decision(options_.repeat, samples_, repeating_);
    if (stop_ == RepeatStop::kContinue) return ask(RankCommand::kRepeat);
    phase_ = Phase::kFinishing;
    ask(options_.trace ? RankCommand::kTrace : RankCommand::kFinish);
  }

  // The first failure is here: hears the others out, for a moment, and names the cause.
  Outcome settle() {
    const fsdp::Nanos until = std::min(deadline_, fsdp::steady_now() + kCauseGrace);
    watch_.ask();
    const auto everybody_is_gone = [&] {
      return std::all_of(answers_.begin(), answers_.end(), [](const Answer& a) { return a.gone; });
    };
    while (!decisive(failures_) && !everybody_is_gone() && fsdp::steady_now() < until) {
      for (const RankUpdate& u : ranks_->wait(std::min(until, fsdp::steady_now() + kTick))) take(u);
    }
    if (!may_be_due_to_another(failures_)) return outcome_of(failures_);
    const std::vector<RankState> states = watch_.states();
    std::vector<int> late = late_ranks(states);
    if (const int missing = missing_rank(failures_); late.empty() && missing >= 0 && missing < ranks_->count())
      late = {missing};
    if (late.empty()) return outcome_of(failures_);
    return outcome_of_lateness(late.front(), lateness_text(states, late, Lateness::kAwaited, doing()), failures_);
  }

  // No rank has failed, and some show no life.
  Outcome inactive_ranks() {
    const std::vector<int> silent = watch_.silent();
    watch_.ask();
    const fsdp::Nanos until = fsdp::steady_now() + kReportGrace;
    while (!watch_.all_answer() && fsdp::steady_now() < until) {
      for (const RankUpdate& u : ranks_->wait(std::min(until, fsdp::steady_now() + kTick))) take(u);
    }
    if (!failures_.empty()) return settle();
    const std::vector<RankState> states = watch_.states();
    std::vector<int> late = late_ranks(states);
    const Lateness how = late.empty() ? Lateness::kIdle : Lateness::kAwaited;
    if (late.empty()) late = silent;
    const std::string text =
        "; nothing of it was seen for longer than step_timeout " + setting_text(settings_, "step_timeout");
    return outcome_of_lateness(late.front(), lateness_text(states, late, how, doing()) + text, {});
  }

  // The time is over. Ranks that still run are asked where they are: a thread of theirs answers.
  Outcome silent_ranks() {
    std::vector<Silence> silent;
    for (int rank = 0; rank < ranks_->count(); ++rank) {
      if (!answers_[rank].given) ranks_->send(rank, to_json_line(RankCommand::kReport));
    }
    const fsdp::Nanos until = fsdp::steady_now() + kReportGrace;
    const auto open = [](const Answer& a) { return !a.given && a.where.empty(); };
    while (std::any_of(answers_.begin(), answers_.end(), open) && fsdp::steady_now() < until) {
      for (const RankUpdate& u : ranks_->wait(std::min(until, fsdp::steady_now() + kTick))) take(u);
    }
    for (int rank = 0; rank < ranks_->count(); ++rank) {
      if (!answers_[rank].given) silent.push_back({rank, answers_[rank].where});
    }
    return outcome_of_silence(silent, options_.timeout, doing());
  }

  void finish(CaseRecord& record) {
    if (done_) {
      ranks_->finish(kEndGrace);
      std::vector<RankResult> results;
      for (Answer& a : answers_) results.push_back(std::move(*a.result));
      fill_samples(record, settings_, samples_, stop_);
      fill_results(record, settings_, results);
      return;
    }
    ranks_->terminate(kTermGrace);
    record.status = outcome_->status;
    record.reason = outcome_->reason;
    record.peak_cause = outcome_->cause;
    if (outcome_->held >= 0) record.peak_bytes = outcome_->held;
    if (!outcome_->passing.empty()) record.environment[kPassingTrouble] = outcome_->passing;
  }

  const CaseSettings& settings_;
  const TrialOptions& options_;
  bool own_cores_ = false;                 // before ranks_, whose start sets it
  std::unique_ptr<PytorchRanks> pytorch_;  // null: ranks of shardscope
  std::unique_ptr<RankGroup> ranks_;
  RankWatch watch_;
  RunStore store_;
  std::vector<Answer> answers_;
  std::vector<Failure> failures_;
  std::vector<fsdp::Nanos> samples_;
  RepeatStop stop_ = RepeatStop::kMax;
  Phase phase_ = Phase::kStarting;
  fsdp::Nanos deadline_ = 0;
  fsdp::Nanos repeating_ = 0;  // time of the repetitions so far, warm-up apart
  bool done_ = false;
  std::optional<Outcome> outcome_;
};
}  // namespace

std::string default_rank_program() {
  if (const char* given = std::getenv("SHARDSCOPE_RANK"); given != nullptr && *given != '\0') return given;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (error ? std::filesystem::path() : self.parent_path()) / "shardscope-rank";
}

namespace {
// False: the case cannot run, and the record says why.
bool may_run(const CaseSettings& settings, CaseRecord& record) {
  try {
    validate(settings);
    record.emulated = settings.wire.has_value();
    record.predicted = settings.device == DeviceKind::kVirtual;
    record.warnings = setting_warnings(settings);
    fill_units(record, settings);
    if (settings.runtime != Runtime::kShardscope) check_runtime_units(settings, plan_of(settings));
    return true;
  } catch (const fsdp::ConfigError& e) {
    record.status = Status::kConfigError;
    record.reason = e.what();
  } catch (const fsdp::EnvironmentError& e) {
    record.status = Status::kSkipped;
    record.reason = e.what();
    record.environment[kPassingTrouble] = "this machine or build";
  }
  return false;
}
}  // namespace

CaseRecord run_trial(const CaseSettings& settings, const TrialOptions& options) {
  CaseRecord record = begin_record(settings);
  record.started_at = fsdp::wall_seconds();
  if (may_run(settings, record)) {
    try {
      if (settings.device == DeviceKind::kVirtual) {
        run_virtual_trial(settings, options, record);
      } else {
        Trial(settings, options).run(record);
      }
    } catch (const fsdp::EnvironmentError& e) {
      if (settings.runtime == Runtime::kShardscope) throw;
      record.status = Status::kSkipped;
      record.reason = std::string(e.what()) + "; ranks of PyTorch are started with SHARDSCOPE_PYTHON, else python3";
      record.environment[kPassingTrouble] = "this machine or build";
    } catch (const std::exception& e) {
      record.status = Status::kCrashed;
      record.reason = std::string("the results of the ranks cannot be used: ") + e.what();
    }
  }
  record.finished_at = fsdp::wall_seconds();
  return record;
}

}  // namespace harness
