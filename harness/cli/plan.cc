#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/plan_view.h"
#include "harness/cli/setting_flags.h"

namespace harness::cli {

void add_plan(CLI::App& app) {
  struct Flags {
    SettingFlags settings;
    bool json = false;
  };
  CLI::App* command =
      app.add_subcommand("plan", "Shows the units of a case, their bytes, and the memory they need; runs nothing");
  auto flags = std::make_shared<Flags>();
  flags->settings.add_to(*command);
  command->add_flag("--json", flags->json, "one JSON document on standard output")->group("Output");
  command->footer(
      "Memory is predicted by driving the scheduler of `run` with counters instead of tensors: the same requests in "
      "the\n"
      "same order, to the byte. Activations are apart: they depend on the model's code, `run` measures them.\n\n"
      "Examples:\n"
      "  shardscope plan --wrap sublayer\n"
      "  shardscope plan --world 64 --set layers=32,dim=4096,heads=32,ffn=11008,vocab=32000 --json\n"
      "  shardscope plan --wrap class:LlamaDecoderLayer,Embedding --strategy shard_grad_op");
  command->callback([flags] {
    const CaseSettings settings = flags->settings.settings();
    const PlanView view = make_plan_view(settings);
    std::cout << (flags->json ? plan_json(settings, view) : plan_text(settings, view)) << std::flush;
  });
}

}  // namespace harness::cli
