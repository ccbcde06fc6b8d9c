#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "fsdp/core/errors.h"
#include "harness/cli/case_text.h"
#include "harness/cli/commands.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/setting_flags.h"
#include "harness/cli/trials.h"
#include "harness/store/whole_file.h"

namespace harness::cli {
namespace {

constexpr fsdp::Nanos kRunTimeout = 24ll * 3600 * 1'000'000'000;  // of the whole run; step_timeout ends what hangs

struct RunFlags {
  SettingFlags settings;
  std::string trace, log_dir;
  bool json = false;
  int repetitions = 1;
};

void run(const RunFlags& flags) {
  CaseSettings settings = flags.settings.settings();
  const bool predicts = settings.device == DeviceKind::kVirtual;
  if (predicts && predicts_beside_the_first()) return;
  const auto place = predicts ? std::nullopt : launched_place();
  if (place && !flags.settings.given("world")) settings.world = place->world;
  check_case(settings);
  if (!place) check_ranks_on_this_machine(settings);
  if (place && place->rank != 0) return follow(*place, settings, flags.log_dir, catch_interrupts());
  if (!flags.trace.empty()) check_writable("--trace", flags.trace);
  CasePlan plan;
  plan.repeat.min = plan.repeat.max = flags.repetitions;
  plan.repeat.time = kRunTimeout;
  plan.timeout = kRunTimeout;
  plan.log_dir = flags.log_dir;
  plan.stop = &catch_interrupts();
  CaseRecord r = (place ? joined_trials(*place) : real_trials())(settings, plan);
  for (const std::string& w : setting_warnings(settings)) {
    if (std::find(r.warnings.begin(), r.warnings.end(), w) == r.warnings.end()) r.warnings.push_back(w);
  }
  if (plan.stop->load() && r.status == Status::kSkipped) return ends_with(kInterrupted);
  std::cout << (flags.json ? case_json(r) : case_text(r)) << std::flush;
  if (r.status == Status::kConfigError) throw fsdp::ConfigError(r.reason);
  if (r.status == Status::kSkipped) throw fsdp::EnvironmentError(r.reason);
  if (!measured(r.status)) ends_with(kNegative);
  if (flags.trace.empty()) return;
  if (r.spans.empty()) {
    std::cerr << "shardscope: no step was traced; " << flags.trace << " is not written\n";
  } else {
    write_trace(flags.trace, r);
  }
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Runs one case and shows where its step time and memory go");
  auto flags = std::make_shared<RunFlags>();
  flags->settings.add_to(*command);
  command
      ->add_option("--repetitions", flags->repetitions,
                   "untraced repetitions of `steps` steps; 6 or more give a 95 % interval (default 1)")
      ->type_name("1, 2, ...")
      ->check(CLI::Range(1, 100000))
      ->group("Measuring");
  command
      ->add_option("--trace", flags->trace,
                   "writes the traced step of all ranks for Perfetto or chrome://tracing; gzip if the name ends in .gz")
      ->type_name("FILE")
      ->group("Output");
  command->add_option("--log-dir", flags->log_dir, "keeps what each rank says as rankN.log")
      ->type_name("DIR")
      ->group("Output");
  command
      ->add_flag("--json", flags->json,
                 "one JSON document on standard output: the CSV columns, losses, grad_norms, unit_metrics, environment")
      ->group("Output");
  command->footer(
      "A run is: fresh rank processes, `warmup` steps, untraced repetitions (their time is the step time), one traced\n"
      "repetition (its partition is the cause). Ends with 0 when the case was ok or near_oom, with 1 when it was "
      "not.\n"
      "Started by torchrun, srun or mpirun it is one rank: rank 0 leads and prints, --world is the launcher's "
      "number. On several hosts it needs SHARDSCOPE_SECRET or SHARDSCOPE_SECRET_FILE (docs/trust.md).\n\n"
      "Examples:\n"
      "  shardscope run\n"
      "  shardscope run --set layers=8,dim=256 --wire 200us,2GB/s --wrap blocks:2 --backward-prefetch none\n"
      "  shardscope run --memory-budget 100MiB --wrap root          # what runs out of memory, and why\n"
      "  mpirun -np 2 --bind-to none shardscope run --wrap blocks:2     # a process for each rank\n"
      "  shardscope run --repetitions 10 --trace step.json.gz --json > case.json");
  command->callback([flags] { run(*flags); });
}

}  // namespace harness::cli
