// Runs the cases of a sweep, in order, into a results directory. Resumes: what is finished is not run again. Measured
// cases run one after the other; predicted ones (device virtual) several at a time, and are kept in order all the same.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/store/records.h"
#include "harness/store/store.h"
#include "harness/sweep/spec.h"

namespace harness {

// What one case is run with. The trial room runs it (harness/trial/trial.h); tests give fakes. Predicted cases come
// from several threads.
struct CasePlan {
  RepeatPolicy repeat;
  bool trace = true;
  fsdp::Nanos timeout = 0;
  std::string log_dir;
  const std::atomic<bool>* stop = nullptr;  // set from outside (Ctrl-C): the case ends as `skipped` within moments
  bool pin = false;                         // ranks keep to cores of their own
};
using RunCase = std::function<CaseRecord(const CaseSettings&, const CasePlan&)>;

struct SweepProgress {
  std::size_t total = 0;     // cases of the spec
  std::size_t finished = 0;  // of those, results are there
  std::size_t resumed = 0;   // of those, from before this call
  std::size_t ran = 0;       // of those, in this call by a trial
  std::map<Status, std::size_t> by_status;
  fsdp::Nanos spent = 0;  // in trials of this call; predictions at the same time count once
  // What is left at the mean pace of this call; 0 while nothing is known.
  fsdp::Nanos remaining() const;
};

struct SweepHooks {
  std::function<void(const SweepProgress&, const SweepCase&)> before_case;
  std::function<void(const SweepProgress&, const SweepCase&, const CaseRecord&)> after_case;  // stored already
  // A case's files beside its row (its trace): on disk when this returns, which is before the row is. Called too for
  // rows of earlier calls that have spans and no files (`has_files`). Where it throws, the row is stored all the same,
  // and the next call makes the files of its spans.
  std::function<void(const CaseRecord&)> keep_files;
  std::function<bool(const std::string& id)> has_files;
  // Another process holds the database; called about fifty times a second with how long it has. May be empty.
  std::function<void(fsdp::Nanos)> waiting;
};

struct SweepOptions {
  std::string directory;
  bool extend = false;  // a spec that differs from the stored one is taken over
  std::string command;  // how to run the sweep again
  std::map<std::string, std::string> environment;
  const std::atomic<bool>* stop = nullptr;
  // Beside check_case: throws fsdp::EnvironmentError for a case that cannot run as this sweep runs them. May be empty.
  std::function<void(const CaseSettings&)> check;
  // Whether a case should fit in its memory budget, by a prediction: where a boundary search looks first.
  // std::nullopt: cannot be told. May be empty.
  std::function<std::optional<bool>(const CaseSettings&)> fits;
  std::set<Status> retry;  // rows of earlier calls with these are run again, beside those of passing trouble
  fsdp::Nanos patience = 600'000'000'000;  // how long other processes that hold the database are waited for
  std::size_t predictions_at_once = 1;     // a worker process each (about 130 MB)
};

struct SweepOutcome {
  SweepProgress progress;
  bool interrupted = false;  // by `stop`; everything that was finished is stored
};

// Cases of which an earlier call left no row are run, and those whose row says that passing trouble ended them
// (kPassingTrouble), or has a status of `retry`.
// Throws fsdp::ConfigError when the directory holds another spec's results (both named), or another sweep writes there;
// fsdp::EnvironmentError when no case of the spec can run on this machine or in this build.
SweepOutcome run_sweep(const SweepSpec& spec, const SweepOptions& options, const RunCase& run,
                       const SweepHooks& hooks = {});

// The path of a case's logs inside a results directory.
std::string case_log_dir(const std::string& directory, const std::string& id);

}  // namespace harness
