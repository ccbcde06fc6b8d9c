#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/machine.h"

namespace harness::cli {

void add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "Says what this machine can do, what it cannot, and the remedy");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "one JSON document on standard output");
  command->footer("Ends with 3 when `run` and `sweep` cannot work here at all.");
  command->callback([json] {
    const std::vector<Finding> findings = examine_machine();
    std::cout << (*json ? findings_json(findings) : findings_text(findings)) << std::flush;
    if (!can_run(findings)) ends_with(kCannotHere);
  });
}

}  // namespace harness::cli
