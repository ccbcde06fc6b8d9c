#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/plan_activations.h"
#include "harness/cli/plan_view.h"
#include "harness/cli/setting_flags.h"

namespace harness::cli {

void add_plan(CLI::App& app) {
  struct Flags {
    SettingFlags settings;
    bool json = false, activations = false;
  };
  CLI::App* command =
      app.add_subcommand("plan", "Shows the units of a case, their bytes, and the memory they need; runs nothing");
  auto flags = std::make_shared<Flags>();
  flags->settings.add_to(*command);
  command->add_flag("--json", flags->json, "one JSON document on standard output")->group("Output");
  command
      ->add_flag("--activations", flags->activations,
                 "also the peak with activations: a step on tensors without memory, by the rank program (a second)")
      ->group("Output");
  command->footer(
      "Memory is predicted by driving the scheduler of `run` with counters instead of tensors: the same requests in "
      "the\n"
      "same order, to the byte. Activations depend on the model's code: --activations runs it on meta tensors, as\n"
      "`run --device virtual` does.\n\n"
      "Examples:\n"
      "  shardscope plan --wrap sublayer\n"
      "  shardscope plan --model llama-2-7b --world 8 --param-dtype bf16 --activations\n"
      "  shardscope plan --world 64 --set layers=32,dim=4096,heads=32,ffn=11008,vocab=32000 --json\n"
      "  shardscope plan --wrap class:LlamaDecoderLayer,Embedding --strategy shard_grad_op");
  command->callback([flags] {
    const CaseSettings settings = flags->settings.settings();
    PlanView view = make_plan_view(settings);
    if (flags->activations) view.with_activations = peak_with_activations(settings, view.with_activations_cause);
    std::cout << (flags->json ? plan_json(settings, view) : plan_text(settings, view)) << std::flush;
  });
}

}  // namespace harness::cli
