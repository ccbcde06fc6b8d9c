#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>

#include "fsdp/core/errors.h"
#include "harness/cli/commands.h"
#include "harness/cost/hardware.h"
#include "harness/store/whole_file.h"
#include "harness/sweep/text.h"
#include "harness/trial/environment.h"
#include "harness/trial/trial.h"

namespace harness::cli {
namespace {

// What the rank program measures, as a hardware file. Its progress goes to standard error.
std::string measured(bool quick) {
  const std::string command = shell_quoted(default_rank_program()) + " --calibrate" + (quick ? " quick" : "");
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) throw fsdp::EnvironmentError("[calibrate] the rank program cannot be started; see shardscope doctor");
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw fsdp::EnvironmentError("[calibrate] the rank program ended without a result; see shardscope doctor");
  return text;
}

void calibrate(const std::string& path, bool quick) {
  if (!path.ends_with(".yaml") && !path.ends_with(".yml"))
    throw fsdp::ConfigError("[-o] " + path + " does not end in .yaml, by which --hardware knows a file; write " + path +
                            ".yaml");
  check_writable("-o", path);
  const std::string text = measured(quick);
  const Hardware h = parse_hardware(text, path);
  write_file(path, text);
  std::cout << path << ": " << h.ops.size() << " operators, " << h.source << "\n"
            << "predict with it: shardscope run --device virtual --hardware " << shell_quoted(path) << "\n";
}

}  // namespace

void add_calibrate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("calibrate", "Measures this machine into a cost file that --hardware takes (device virtual)");
  auto path = std::make_shared<std::string>();
  auto quick = std::make_shared<bool>(false);
  command->add_option("-o,--output", *path, "the file to write; its name ends in .yaml")->type_name("FILE")->required();
  command->add_flag("--quick", *quick, "fewer sizes and repetitions: about ten seconds instead of a minute");
  command->footer("Other programs on the machine make the figures worse: measure on an idle one.");
  command->callback([path, quick] { calibrate(*path, *quick); });
}

}  // namespace harness::cli
