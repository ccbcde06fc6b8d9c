#include "harness/cli/analyze.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/trace/analyze.h"

namespace harness::cli {
namespace {

struct AnalyzeFlags {
  AnalyzeOptions options;
  std::string convention = "exclusive";
  bool json = false, no_rounding = false;
};

void analyze(const AnalyzeFlags& flags) {
  AnalyzeOptions options = flags.options;
  options.convention = *convention_from(flags.convention);
  options.hta_round = !flags.no_rounding;
  const TraceAnalysis result = analyze_traces(options);
  std::cout << (flags.json ? to_json(result) : to_text(result));
  ends_with(exit_code_of(result.outcome));
}

}  // namespace

void add_analyze(CLI::App& app) {
  auto flags = std::make_shared<AnalyzeFlags>();
  CLI::App* command = app.add_subcommand(
      "analyze",
      "The partition of a trace made elsewhere: what every nanosecond of each device's step was spent on, how much "
      "communication is hidden, and by whose definition.");
  command
      ->add_option(
          "FILE", flags->options.paths,
          "Kineto JSON (.json, .json.gz), nsys SQLite export, or our own trace; several files are ranks of one run")
      ->required();
  command
      ->add_option(
          "--convention", flags->convention,
          "whose definitions to add: exclusive (ours alone), hta (HolisticTraceAnalysis), tracelens, nsys (nsys-ai)")
      ->check(CLI::IsMember({"exclusive", "hta", "tracelens", "nsys"}))
      ->capture_default_str();
  command
      ->add_option("--rank", flags->options.ranks,
                   "rank of each file, in their order, where the files do not say it: 0,1,2")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_flag("--include-cut-step", flags->options.include_cut_step, "count a step whose marker never ended");
  command->add_flag("--include-last-step", flags->options.hta_include_last_step,
                    "hta: keep the last profiler step, which it drops by default");
  command->add_flag("--no-rounding", flags->no_rounding, "hta: exact nanoseconds instead of its whole microseconds");
  command->add_option("--perfetto", flags->options.perfetto,
                      "write an annotated trace to this file (.json or .json.gz)");
  command->add_flag("--json", flags->json, "one JSON document instead of a table");
  command->footer("Exit codes: 0 clean, 1 partial or no device activity, 2 unusable.");
  command->callback([flags] { analyze(*flags); });
}

}  // namespace harness::cli
