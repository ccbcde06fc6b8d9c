#include "harness/sweep/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace harness {
namespace {

bool stopped(const SweepOptions& options) { return options.stop && options.stop->load(); }

void refuse_other_spec(const SweepRecord& stored, const SweepSpec& spec, const std::string& directory) {
  std::string difference = "their settings differ";
  try {
    difference = first_difference(parse_spec(stored.spec_text, stored.name), spec);
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
  SweepRecord record{spec.name, spec.text,           spec.hash(),          options.command,
                     spec.axes, options.environment, fsdp::wall_seconds(), 1};
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

// A case that cannot run is a row with a reason.
CaseRecord unrun_record(const SweepCase& c) {
  CaseRecord r;
  r.status = c.config_error.empty() ? Status::kSkipped : Status::kConfigError;
  r.reason = c.config_error.empty() ? c.environment_error : c.config_error;
  return r;
}

CaseRecord run_one(const SweepCase& c, const SweepSpec& spec, const SweepOptions& options, const RunCase& run) {
  if (!c.config_error.empty() || !c.environment_error.empty()) return unrun_record(c);
  const std::string log_dir = case_log_dir(options.directory, c.id);
  std::filesystem::create_directories(log_dir);
  CaseRecord r = run(c.settings, {spec.repeat, spec.trace, spec.timeout, log_dir, options.stop});
  for (const std::string& w : setting_warnings(c.settings)) {
    if (std::find(r.warnings.begin(), r.warnings.end(), w) == r.warnings.end()) r.warnings.push_back(w);
  }
  return r;
}

void identify(CaseRecord& r, const SweepCase& c, std::int64_t started) {
  r.id = c.id;
  r.settings = all_settings(c.settings);
  r.axes = c.axes;
  if (r.started_at == 0) r.started_at = started;
  if (r.finished_at == 0) r.finished_at = fsdp::wall_seconds();
}

SweepProgress begin_progress(Store& store, const std::vector<SweepCase>& cases, std::set<std::string>& finished) {
  SweepProgress progress;
  progress.total = cases.size();
  std::set<std::string> wanted;
  for (const SweepCase& c : cases) wanted.insert(c.id);
  for (const auto& [id, status] : store.statuses()) {
    if (!wanted.count(id)) continue;
    finished.insert(id);
    ++progress.by_status[status];
  }
  progress.finished = progress.resumed = finished.size();
  return progress;
}

}  // namespace

fsdp::Nanos SweepProgress::remaining() const {
  return ran == 0 ? 0 : spent / static_cast<fsdp::Nanos>(ran) * static_cast<fsdp::Nanos>(total - finished);
}

std::string case_log_dir(const std::string& directory, const std::string& id) {
  return (std::filesystem::path(directory) / "logs" / id).string();
}

SweepOutcome run_sweep(const SweepSpec& spec, const SweepOptions& options, const RunCase& run,
                       const SweepHooks& hooks) {
  const std::vector<SweepCase> cases = expand(spec);
  if (cases.empty())
    throw fsdp::ConfigError(fmt::format("[{}] exclude leaves out every case; take an entry away", spec.file));
  refuse_if_nothing_can_run(cases);
  Store store = Store::open_for_writing(options.directory);
  store_sweep(store, spec, options);

  SweepOutcome outcome;
  SweepProgress& progress = outcome.progress;
  std::set<std::string> finished;
  progress = begin_progress(store, cases, finished);
  for (const SweepCase& c : cases) {
    if (finished.count(c.id)) continue;
    if ((outcome.interrupted = stopped(options))) break;
    if (hooks.before_case) hooks.before_case(progress, c);
    const fsdp::Nanos begin = fsdp::steady_now();
    const std::int64_t started = fsdp::wall_seconds();
    CaseRecord r = run_one(c, spec, options, run);
    if ((outcome.interrupted = stopped(options) && r.status == Status::kSkipped)) break;
    identify(r, c, started);
    store.write_case(r);
    ++progress.finished;
    ++progress.by_status[r.status];
    if (c.config_error.empty() && c.environment_error.empty()) {
      ++progress.ran;
      progress.spent += fsdp::steady_now() - begin;
    }
    if (hooks.after_case) hooks.after_case(progress, c, r);
  }
  return outcome;
}

}  // namespace harness
