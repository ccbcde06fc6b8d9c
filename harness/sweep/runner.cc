#include "harness/sweep/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "fsdp/core/files.h"
#include "harness/store/checks.h"
#include "harness/sweep/boundary_runner.h"
#include "harness/sweep/interleave.h"
#include "harness/sweep/late_cases.h"
#include "harness/sweep/ordered_parallel.h"
#include "harness/sweep/rounds.h"

namespace harness {
namespace {

bool stopped(const SweepOptions& options) { return options.stop && options.stop->load(); }

sqlite::GoOnWaiting wait_as_asked(const SweepOptions& options, const SweepHooks& hooks) {
  return [&options, &hooks](fsdp::Nanos waited) {
    if (hooks.waiting) hooks.waiting(waited);
    return waited < options.patience && !stopped(options);
  };
}

void refuse_other_spec(const SweepRecord& stored, const SweepSpec& spec, const std::string& directory) {
  std::string difference = "their settings differ";
  try {
    difference = first_difference(parse_spec(stored.spec_text, stored.name, FileTexts(stored.files)), spec);
  } catch (const fsdp::ConfigError&) {  // written by a version with other settings
  }
  throw fsdp::ConfigError(
      fmt::format("[{}] holds results of the spec \"{}\" ({}), not of {} ({}): {}; give another directory, or --extend "
                  "to add to it",
                  directory, stored.name, stored.spec_hash, spec.file, spec.hash(), difference));
}

// Values of both, the new spec's first; axes that only the old spec had are left to the cases' own records.
std::vector<SweepSpec::Axis> merged_axes(std::vector<SweepSpec::Axis> axes, const std::vector<SweepSpec::Axis>& old) {
  for (auto& [name, values] : axes) {
    for (const auto& [old_name, old_values] : old) {
      if (old_name != name) continue;
      for (const std::string& v : old_values) {
        if (std::find(values.begin(), values.end(), v) == values.end()) values.push_back(v);
      }
    }
  }
  return axes;
}

void store_sweep(Store& store, const SweepSpec& spec, const SweepOptions& options) {
  SweepRecord record{spec.name,
                     spec.text,
                     spec.hash(),
                     options.command,
                     spec.all_axes(),
                     spec.files,
                     options.environment,
                     fsdp::wall_seconds(),
                     1};
  if (store.has_sweep()) {
    const SweepRecord stored = store.read_sweep();
    if (stored.spec_hash == record.spec_hash) return;
    if (!options.extend) refuse_other_spec(stored, spec, options.directory);
    record.axes = merged_axes(record.axes, stored.axes);
    record.created_at = stored.created_at;
  }
  store.write_sweep(record);
}

void refuse_if_nothing_can_run(const std::vector<SweepCase>& cases) {
  const bool none = !cases.empty() && std::all_of(cases.begin(), cases.end(),
                                                  [](const SweepCase& c) { return !c.environment_error.empty(); });
  if (none) throw fsdp::EnvironmentError(cases.front().environment_error);
}

bool runnable(const SweepCase& c) { return c.config_error.empty() && c.environment_error.empty(); }

// A case that cannot run is a row with a reason.
CaseRecord unrun_record(const SweepCase& c) {
  CaseRecord r;
  r.status = c.config_error.empty() ? Status::kSkipped : Status::kConfigError;
  r.reason = c.config_error.empty() ? c.environment_error : c.config_error;
  if (c.config_error.empty()) r.environment[kPassingTrouble] = "this machine or build";
  return r;
}

SweepCase checked(SweepCase c, const SweepOptions& options) {
  if (!options.check || !runnable(c)) return c;
  try {
    options.check(c.settings);
  } catch (const fsdp::EnvironmentError& e) {
    c.environment_error = e.what();
  }
  return c;
}

// What ranks made up may not be believed, and must not make the whole database unreadable.
CaseRecord believable(CaseRecord r) {
  const std::string problem = problem_of(r);
  if (problem.empty()) return r;
  CaseRecord refused;
  refused.status = Status::kCrashed;
  refused.reason = "the results of the ranks cannot be used: " + problem;
  refused.environment = std::move(r.environment);
  return refused;
}

CaseRecord run_one(const SweepCase& c, const CasePlan& how, const RunCase& run, const std::string& directory) {
  if (!runnable(c)) return unrun_record(c);
  fsdp::Folder::open(directory).inner("logs").inner(c.id);
  CaseRecord r = believable(run(c.settings, how));
  for (const std::string& w : setting_warnings(c.settings)) {
    if (std::find(r.warnings.begin(), r.warnings.end(), w) == r.warnings.end()) r.warnings.push_back(w);
  }
  return r;
}

void identify(CaseRecord& r, const SweepCase& c, std::int64_t started) {
  r.id = c.id;
  r.settings = all_settings(c.settings);
  r.files = files_of(c.settings);
  r.axes = c.axes;
  if (r.started_at == 0) r.started_at = started;
  if (r.finished_at == 0) r.finished_at = fsdp::wall_seconds();
}

// Rows that count: not those that are to be run again.
SweepProgress begin_progress(Store& store, const std::vector<SweepCase>& cases, const std::set<Status>& retry,
                             std::map<std::string, Status>& finished) {
  SweepProgress progress;
  progress.total = cases.size();
  std::map<std::string, bool> wanted;  // and whether it can run
  for (const SweepCase& c : cases) wanted[c.id] = runnable(c);
  const std::vector<std::string> passing = store.passing_ids();
  const std::set<std::string> passed(passing.begin(), passing.end());
  for (const auto& [id, status] : store.statuses()) {
    const auto found = wanted.find(id);
    if (found == wanted.end() || (found->second && (passed.count(id) != 0 || retry.count(status) != 0))) continue;
    finished.emplace(id, status);
    ++progress.by_status[status];
  }
  progress.finished = progress.resumed = finished.size();
  return progress;
}

// One call of run_sweep: runs cases, stores them, counts, and tells the hooks.
class Sweeping {
 public:
  Sweeping(const SweepSpec& spec, const SweepOptions& options, const RunCase& run, const SweepHooks& hooks,
           Store& store)
      : spec_(spec), options_(options), run_(run), hooks_(hooks), store_(store) {}

  // Stretches of predicted cases, and measured ones between them.
  void cases(const std::vector<SweepCase>& cases) {
    std::vector<const SweepCase*> stretch;
    for (const SweepCase& c : cases) {
      if (finished_.count(c.id)) continue;
      if (c.settings.device == DeviceKind::kVirtual && runnable(c)) {
        stretch.push_back(&c);
      } else if (!predict(std::exchange(stretch, {})) || !run(c)) {
        return;
      }
    }
    predict(stretch);
  }

  void interleaved(const std::vector<SweepCase>& cases) {
    std::vector<const SweepCase*> missing;
    for (const SweepCase& c : cases)
      if (!finished_.count(c.id)) missing.push_back(&c);
    if (missing.empty()) {  // stopped after the last case, before its rounds had their place
      if (RoundsKept::exists(options_.directory))
        RoundsKept(options_.directory, wait_as_asked(options_, hooks_)).move_to_table();
      return;
    }
    const std::int64_t started = fsdp::wall_seconds();
    const RunRound round = [&](std::size_t i, bool traced) {
      CasePlan how = plan_of(*missing[i]);
      how.repeat.min = how.repeat.max = spec_.round.repetitions;
      how.repeat.time = spec_.round.time;
      how.pin = spec_.round.pin;
      how.trace = traced;
      return trial(*missing[i], how);
    };
    RoundsKept kept(options_.directory, wait_as_asked(options_, hooks_));
    std::vector<std::vector<CaseRecord>> before;
    for (const SweepCase* c : missing) before.push_back(kept.read(c->id));
    outcome.interrupted = !run_interleaved(
        missing.size(), spec_.repeat, spec_.round.alone_relative_ci, spec_.trace, round,
        [&](std::size_t i, CaseRecord r) { keep(*missing[i], std::move(r), started); }, std::move(before),
        [&](std::size_t i, std::size_t n, const CaseRecord& r) { kept.write(missing[i]->id, n, r); });
    if (outcome.interrupted) return;
    kept.move_to_table();
  }

  void boundaries(const std::vector<SweepCase>& points) {
    BoundaryHooks hooks;
    hooks.stored = [&](const SweepCase& c) { return stored(c); };
    hooks.checked = [&](SweepCase c) { return checked(std::move(c), options_); };
    hooks.run = [&](const SweepCase& c) { return run(c); };
    hooks.run_check = [&](const SweepCase& c, const std::string& expected) { return run(c, expected); };
    hooks.skip = [&](const SweepCase& c, const std::string& reason) { skip(c, reason); };
    if (options_.fits) hooks.predict = [&](const std::vector<SweepCase>& line) { return predicted(line); };
    for (const SweepCase& point : points) {
      predicted_.clear();
      outcome.interrupted = run_boundary(spec_, point.axes, hooks).interrupted;
      if (outcome.interrupted) return;
    }
  }

  void count_stored(const std::vector<SweepCase>& cases) {
    outcome.progress = begin_progress(store_, cases, options_.retry, finished_);
  }

  // What an earlier call was killed before, or had no room for.
  void make_missing_files() {
    if (!hooks_.has_files || !hooks_.keep_files) return;
    for (const std::string& id : store_.traced_ids())
      if (finished_.count(id) != 0 && !hooks_.has_files(id)) hooks_.keep_files(store_.read_case(id));
  }

  SweepOutcome outcome;

 private:
  CasePlan plan_of(const SweepCase& c) const {
    return {spec_.repeat, spec_.trace, spec_.timeout, case_log_dir(options_.directory, c.id), options_.stop};
  }

  // One trial. std::nullopt: interrupted.
  std::optional<CaseRecord> trial(const SweepCase& c, const CasePlan& how) {
    if (stopped(options_)) return std::nullopt;
    if (hooks_.before_case) hooks_.before_case(outcome.progress, c);
    const fsdp::Nanos begin = fsdp::steady_now();
    CaseRecord r = run_one(c, how, run_, options_.directory);
    if (stopped(options_) && r.status == Status::kSkipped) return std::nullopt;
    if (runnable(c)) outcome.progress.spent += fsdp::steady_now() - begin;
    return r;
  }

  std::optional<CaseRecord> run(const SweepCase& c, const std::string& expected = "") {
    const std::int64_t started = fsdp::wall_seconds();
    auto r = trial(c, plan_of(c));
    if (!r) {
      outcome.interrupted = true;
      return std::nullopt;
    }
    if (!expected.empty()) r->environment[kBoundaryCheckKey] = expected;
    if (!predicted_.empty() && runnable(c)) r->environment[kBoundaryPredictedKey] = predicted_;
    return keep(c, std::move(*r), started);
  }

  CaseRecord keep(const SweepCase& c, CaseRecord r, std::int64_t started) {
    SweepProgress& progress = outcome.progress;
    identify(r, c, started);
    std::exception_ptr trouble;
    try {
      if (hooks_.keep_files) hooks_.keep_files(r);
    } catch (const fsdp::Error&) {
      trouble = std::current_exception();
    }
    store(r);
    count(r);
    if (runnable(c)) ++progress.ran;
    if (hooks_.after_case) hooks_.after_case(progress, c, r);
    if (trouble) std::rethrow_exception(trouble);
    return r;
  }

  // A measured case is not lost to another process that does not let go of the database.
  void store(const CaseRecord& r) {
    try {
      store_.write_case(r);
    } catch (const sqlite::Busy& e) {
      keep_late(options_.directory, r);
      throw sqlite::Busy(fmt::format("{}; the case that was measured is kept, and the same command goes on", e.what()));
    }
  }

  // A case once, with its latest status: a search runs cases again of which an earlier call has left a skipped row.
  void count(const CaseRecord& r) {
    SweepProgress& p = outcome.progress;
    const auto [known, fresh] = finished_.emplace(r.id, r.status);
    p.finished += fresh ? 1 : 0;
    if (!fresh && --p.by_status[known->second] == 0) p.by_status.erase(known->second);
    known->second = r.status;
    ++p.by_status[r.status];
  }

  // Several at once, kept in order. False: interrupted.
  bool predict(const std::vector<const SweepCase*>& cases) {
    using Kept = std::pair<CaseRecord, std::int64_t>;  // with the second in which it began
    const auto work = [&](std::size_t i) {
      const std::int64_t started = fsdp::wall_seconds();
      return stopped(options_) ? Kept{}
                               : Kept{run_one(*cases[i], plan_of(*cases[i]), run_, options_.directory), started};
    };
    fsdp::Nanos before = fsdp::steady_now();
    ordered_parallel<Kept>(cases.size(), options_.predictions_at_once, work, [&](std::size_t i, Kept kept) {
      if (stopped(options_) && kept.first.status == Status::kSkipped) outcome.interrupted = true;
      if (outcome.interrupted) return false;
      if (hooks_.before_case) hooks_.before_case(outcome.progress, *cases[i]);
      const fsdp::Nanos now = fsdp::steady_now();
      outcome.progress.spent += now - std::exchange(before, now);
      keep(*cases[i], std::move(kept.first), kept.second);
      return true;
    });
    return !outcome.interrupted;
  }

  // Of the cases of one search; remembered for the records of its trials.
  std::optional<int> predicted(const std::vector<SweepCase>& line) {
    const auto largest = largest_that_fits(static_cast<int>(line.size()), [&](int i) -> std::optional<bool> {
      const SweepCase& c = line[static_cast<std::size_t>(i)];
      if (stopped(options_) || !runnable(c)) return std::nullopt;
      return options_.fits(c.settings);
    });
    if (largest) predicted_ = *largest < 0 ? "none" : line[static_cast<std::size_t>(*largest)].axes.back().second;
    return largest;
  }

  // A row that a search did not need to run; stored once.
  void skip(const SweepCase& c, const std::string& reason) {
    if (finished_.count(c.id)) return;
    CaseRecord r;
    r.status = Status::kSkipped;
    r.reason = reason;
    identify(r, c, fsdp::wall_seconds());
    store(r);
    count(r);
  }

  std::optional<CaseRecord> stored(const SweepCase& c) {
    if (!finished_.count(c.id)) return std::nullopt;
    CaseRecord r = store_.read_case(c.id);
    return r.status == Status::kSkipped ? std::nullopt : std::optional(std::move(r));
  }

  const SweepSpec& spec_;
  const SweepOptions& options_;
  const RunCase& run_;
  const SweepHooks& hooks_;
  Store& store_;
  std::map<std::string, Status> finished_;  // cases of the spec that have a row
  std::string predicted_;                   // of the boundary that is searched; empty: nothing
};

}  // namespace

fsdp::Nanos SweepProgress::remaining() const {
  return ran == 0 ? 0 : spent / static_cast<fsdp::Nanos>(ran) * static_cast<fsdp::Nanos>(total - finished);
}

std::string case_log_dir(const std::string& directory, const std::string& id) {
  return (std::filesystem::path(directory) / "logs" / id).string();
}

SweepOutcome run_sweep(const SweepSpec& spec, const SweepOptions& options, const RunCase& run,
                       const SweepHooks& hooks) {
  std::vector<SweepCase> points = expand(spec);
  if (points.empty())
    throw fsdp::ConfigError(fmt::format("[{}] exclude leaves out every case; take an entry away", spec.file));
  std::vector<SweepCase> cases = all_cases(spec);
  for (SweepCase& c : cases) c = checked(std::move(c), options);
  refuse_if_nothing_can_run(cases);
  Store store = Store::open_for_writing(options.directory, wait_as_asked(options, hooks));
  store_sweep(store, spec, options);
  move_late_cases(options.directory, store);
  (void)store.read_cases(Store::Detail::kAll);  // what is damaged is said before hours are measured beside it
  const fsdp::Folder results = fsdp::Folder::open(options.directory);
  results.remove_unfinished();

  Sweeping sweeping(spec, options, run, hooks, store);
  sweeping.count_stored(cases);
  sweeping.make_missing_files();
  if (spec.boundary) {
    sweeping.boundaries(points);
  } else if (spec.interleave) {
    sweeping.interleaved(cases);
  } else {
    sweeping.cases(cases);
  }
  return std::move(sweeping.outcome);
}

}  // namespace harness
