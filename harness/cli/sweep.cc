#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <set>

#include "fsdp/core/errors.h"
#include "fsdp/core/files.h"
#include "harness/cli/command_words.h"
#include "harness/cli/commands.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/launched_trials.h"
#include "harness/cli/plan_view.h"
#include "harness/cli/progress_line.h"
#include "harness/cli/result_files.h"
#include "harness/cli/trials.h"
#include "harness/store/store.h"
#include "harness/store/whole_file.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"
#include "harness/trial/environment.h"
#include "harness/trial/virtual_workers.h"
#include "reports/csv.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;

struct SweepFlags {
  std::string spec, directory, launcher = "local", retry;
  int nodes = 1;
  bool dry_run = false, strict = false, extend = false;
};

std::string predicted_memory(const SweepCase& c) {
  if (!c.config_error.empty()) return "config_error: " + c.config_error;
  if (!c.environment_error.empty()) return "skipped: " + c.environment_error;
  const PlanView view = make_plan_view(c.settings);
  const fsdp::Bytes budget = c.settings.memory_budget;
  const bool over = budget != fsdp::MemoryMeter::kNoBudget && view.peak_bytes > budget;
  return fmt::format("{:>3} units  {:>11} + activations{}", view.units.size(), format_bytes(view.peak_bytes),
                     over ? "   above memory_budget " + setting_text(c.settings, "memory_budget") : "");
}

void dry_run(const SweepSpec& spec) {
  const std::vector<SweepCase> cases = all_cases(spec);
  std::size_t widest = 0;
  for (const SweepCase& c : cases) widest = std::max(widest, axes_text(c.axes).size());
  for (const SweepCase& c : cases)
    std::cout << fmt::format("{:<{}}  {}\n", axes_text(c.axes), widest, predicted_memory(c));
  std::cout << fmt::format("{} cases{}, {} to {} repetitions each, {} per trial at most\n", cases.size(),
                           spec.boundary ? ", of which the search runs some" : "", spec.repeat.min, spec.repeat.max,
                           exact_nanos(spec.timeout));
}

// DIR/traces/ID.json.gz. A case without spans has none, not even that of an earlier attempt.
class Traces {
 public:
  explicit Traces(std::string directory) : directory_(std::move(directory)) {}
  void keep(const CaseRecord& r) {
    if (r.spans.empty() && !fs::exists(fs::symlink_status(fs::path(directory_) / kFolder))) return;
    if (r.spans.empty()) return folder().remove(name_of(r.id));
    write_trace(folder().path_of(name_of(r.id)), r, false);
  }
  bool has(const std::string& id) { return folder().holds_file(name_of(id)); }

 private:
  static constexpr const char* kFolder = "traces";
  static std::string name_of(const std::string& id) { return id + ".json.gz"; }
  const fsdp::Folder& folder() {
    if (!folder_) {
      folder_.emplace(fsdp::Folder::open(directory_).inner(kFolder));
      folder_->remove_unfinished();
    }
    return *folder_;
  }
  const std::string directory_;
  std::optional<fsdp::Folder> folder_;  // made with the first trace
};

std::set<Status> statuses_of(const std::string& list) {
  std::set<Status> out;
  for (const std::string& piece : list.empty() ? std::vector<std::string>() : split(list, ',')) {
    const auto status = status_from(trim(piece));
    if (!status)
      throw fsdp::ConfigError(fmt::format(
          "[--retry] \"{}\" is no status; use ok, near_oom, oom, timeout, crashed, comm_error, config_error, skipped",
          trim(piece)));
    out.insert(*status);
  }
  return out;
}

// Once, after what one waits for without a thought.
std::function<void(fsdp::Nanos)> tell_waiting(const std::string& directory, fsdp::Nanos patience) {
  constexpr fsdp::Nanos kUnnoticed = 2'000'000'000;
  return [=, told = std::make_shared<bool>(false)](fsdp::Nanos waited) {
    if (waited < kUnnoticed) *told = false;
    if (waited < kUnnoticed || *told) return;
    *told = true;
    std::cerr << fmt::format("shardscope: another process holds {}/results.db; waiting for it, {} at most\n", directory,
                             format_nanos(patience));
  };
}

// Cases that the next run of the same command runs again, each with its trouble.
void name_passing_trouble(const std::vector<CaseRecord>& cases) {
  constexpr std::size_t kNamed = 10;
  std::vector<std::string> named;
  std::size_t count = 0;
  for (const CaseRecord& r : cases) {
    const auto trouble = r.environment.find(kPassingTrouble);
    if (trouble == r.environment.end() || measured(r.status)) continue;
    if (++count <= kNamed)
      named.push_back(fmt::format("  {} ({}): {}", axes_text(r.axes).empty() ? r.id : axes_text(r.axes),
                                  trouble->second, r.reason));
  }
  if (count == 0) return;
  if (count > kNamed) named.push_back(fmt::format("  and {} more", count - kNamed));
  std::cerr << fmt::format("{} ended by trouble that may pass; the same command runs {} again:\n{}\n",
                           count == 1 ? "1 case was" : fmt::format("{} cases were", count), count == 1 ? "it" : "them",
                           fmt::join(named, "\n"));
}

// The case of a job step whose ranks the launcher has started (launched_trials.h).
SweepCase only_case(const SweepSpec& spec, const RankPlace& place) {
  const std::vector<SweepCase> cases = all_cases(spec);
  if (cases.size() != 1 || spec.interleave)
    throw fsdp::ConfigError(fmt::format(
        "[launch] {} has started {} ranks of a sweep of {} cases; start shardscope sweep alone, it starts fresh ranks "
        "for each case itself, on several nodes with --launcher and --nodes",
        place.contract, place.world, cases.size()));
  return cases.front();
}

bool only_predicts(const SweepSpec& spec) {
  const std::vector<SweepCase> cases = all_cases(spec);
  return std::all_of(cases.begin(), cases.end(),
                     [](const SweepCase& c) { return c.settings.device == DeviceKind::kVirtual; });
}

// Texts that results of an earlier call hold.
Files kept_files(const std::string& directory) try {
  if (directory.empty() || !Store::exists(directory)) return {};
  Store store = Store::open(directory);
  return store.has_sweep() ? store.read_sweep().files : Files();
} catch (const fsdp::ConfigError&) {
  return {};
}

// Files that are gone since an earlier call are taken from its results.
SweepSpec spec_of(const SweepFlags& flags) {
  try {
    return read_spec(flags.spec);
  } catch (const fsdp::ConfigError&) {
    const Files kept = kept_files(flags.directory);
    if (kept.empty()) throw;
    return read_spec(flags.spec, FileTexts({}, kept));
  }
}

void sweep(const SweepFlags& flags) {
  const Launcher launcher = parse_launcher(flags.launcher);
  const SweepSpec spec = spec_of(flags);
  if (flags.dry_run) return dry_run(spec);
  if (flags.directory.empty())
    throw fsdp::ConfigError("[-o] is missing; give a directory for the results, for instance -o out/first");
  const bool predicts = only_predicts(spec);
  if (predicts && predicts_beside_the_first()) return;
  const auto place = predicts ? std::nullopt : launched_place();
  const std::atomic<bool>& stop = catch_interrupts();
  if (place) {
    const SweepCase c = only_case(spec, *place);
    if (place->rank != 0) return follow(*place, c.settings, case_log_dir(flags.directory, c.id), stop);
  }
  SweepOptions options;
  options.directory = flags.directory;
  options.extend = flags.extend;
  options.command = command_words();
  options.environment = host_environment();
  options.stop = &stop;
  options.retry = statuses_of(flags.retry);
  if (!place && launcher.kind == Launcher::Kind::kLocal) options.check = check_ranks_on_this_machine;
  options.predictions_at_once = most_virtual_workers();
  if (spec.boundary) options.fits = [&stop](const CaseSettings& c) { return predicted_to_fit(c, &stop); };
  ProgressLine line;
  SweepHooks hooks;
  hooks.before_case = [&](const SweepProgress& p, const SweepCase& c) { line.begin_case(p, c); };
  hooks.after_case = [&](const SweepProgress& p, const SweepCase& c, const CaseRecord& r) { line.end_case(p, c, r); };
  Traces traces(flags.directory);
  hooks.keep_files = [&](const CaseRecord& r) { traces.keep(r); };
  hooks.has_files = [&](const std::string& id) { return traces.has(id); };
  hooks.waiting = tell_waiting(flags.directory, options.patience);
  const RunCase trials = place ? joined_trials(*place)
                         : launcher.kind == Launcher::Kind::kLocal
                             ? real_trials()
                             : launched_trials(launcher, flags.directory, flags.nodes);
  SweepOutcome outcome;
  try {
    outcome = run_sweep(spec, options, trials, hooks);
  } catch (const sqlite::Busy& e) {
    if (!stop.load()) throw;
    std::cerr << fmt::format("shardscope: {}\n", e.what());
    return ends_with(kInterrupted);
  }
  const reports::ReportInput results = read_results(flags.directory);
  write_file(fsdp::Folder::open(flags.directory), "results.csv", reports::cases_csv(results.sweep, results.cases));
  std::cerr << fmt::format("{} of {} cases in {}: {}\n", outcome.progress.finished, outcome.progress.total,
                           flags.directory, counts_text(outcome.progress));
  if (outcome.interrupted) {
    std::cerr << "interrupted; the same command goes on\n";
    return ends_with(kInterrupted);
  }
  name_passing_trouble(results.cases);
  for (const auto& [status, n] : outcome.progress.by_status) {
    const bool passed_over = status == Status::kSkipped && spec.boundary;
    if (flags.strict && !measured(status) && !passed_over) ends_with(kNegative);
  }
}

}  // namespace

void add_sweep(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("sweep", "Runs every case of a spec into a directory; goes on where it was stopped");
  auto flags = std::make_shared<SweepFlags>();
  command->add_option("SPEC", flags->spec, "the spec, a YAML file")->required();
  command->add_option("-o,--output", flags->directory, "directory of the results; made if it is not there")
      ->type_name("DIR");
  command->add_flag("--dry-run", flags->dry_run,
                    "lists the cases with the memory that is predicted for them; runs nothing");
  command->add_flag("--strict", flags->strict, "ends with 1 if a case is neither ok nor near_oom");
  command->add_flag("--extend", flags->extend, "adds the cases of a changed spec to the results that are there");
  command
      ->add_option(
          "--retry", flags->retry,
          "runs cases again that ended so, for instance crashed,timeout; those that were ended by trouble that "
          "passes (a signal from outside, no memory or descriptors on the host) are run again without it")
      ->type_name("STATUS,...");
  command
      ->add_option(
          "--launcher", flags->launcher,
          "what starts a trial: local; slurm, mpi or template:COMMAND with {command}, a job step for each trial "
          "(default local)")
      ->type_name("local|slurm|mpi|template:...");
  command
      ->add_option("--nodes", flags->nodes,
                   "with a launcher: spreads the ranks of a trial over so many nodes, a process of the step for each "
                   "rank; with 1 the step is one process and starts the ranks itself (default 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command->footer(
      "Each case runs in fresh processes. A case that runs out of memory, hangs or crashes is a row with its reason. "
      "Stop\n"
      "at any time: what is finished is kept, and the same command goes on.\n\n"
      "A spec:\n"
      "  base: {model: llama, set: {layers: 8, dim: 256}, steps: 4, wire: \"200us,2GB/s\", memory_budget: 400MiB}\n"
      "  axes:\n"
      "    wrap: [root, \"blocks:4\", block, sublayer]\n"
      "    backward_prefetch: [none, pre]\n"
      "  exclude: [{wrap: root, backward_prefetch: pre}]\n"
      "  repeat: {min: 6, max: 30, relative_ci: 2%, time: 30s}    # untraced repetitions of `steps` steps\n"
      "  trace: one          # or none\n"
      "  timeout: 120s       # per trial\n"
      "  boundary: {setting: batch, from: 1, to: 64}   # the largest that fits, at each point of the axes; few trials\n"
      "  interleave: true    # fresh processes for each sample, cases in turns: for `shardscope compare`; the same as\n"
      "                      # {repetitions: 20, time: 2s, pin: true}: a sample is the lower quartile of as many\n"
      "                      # repetitions, ranks on the CPU keep to cores of their own where there are as many\n"
      "                      # physical cores as ranks; relative_ci is of the ratio, 0.75% unless the spec says it\n"
      "  files: {units.yaml: \"units: [...]\"}           # contents of files that settings name, in place of the "
      "disk's\n"
      "Keys of base and axes are the settings of `shardscope run --help`, with underscores.\n\n"
      "Written into DIR: results.db, results.csv, traces/CASE.json.gz, logs/CASE/rankN.log; rounds.csv with\n"
      "interleave: every repetition.\n\n"
      "Examples:\n"
      "  shardscope sweep scripts/experiments/quickstart.yaml --dry-run\n"
      "  shardscope sweep scripts/experiments/quickstart.yaml -o out/quickstart && shardscope report out/quickstart");
  command->callback([flags] { sweep(*flags); });
}

}  // namespace harness::cli
