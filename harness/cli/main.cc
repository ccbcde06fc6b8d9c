// shardscope: the program that users call. Links no LibTorch.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>

#include "fsdp/core/errors.h"
#include "harness/cli/command_words.h"
#include "harness/cli/commands.h"
#include "harness/cli/safe_output.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"
#include "harness/trial/environment.h"

namespace harness::cli {
namespace {

int exit_code = kDone;
std::string words;

// One line, but for what ranks say of each other: that ends in a table (harness/trial/launchers.h).
int complain(int code, const std::string& text) {
  std::string line = text;
  const bool table = text.starts_with("[launch]");
  while (table && line.ends_with('\n')) line.pop_back();
  for (char& c : line) {
    if (!table && (c == '\n' || c == '\r')) c = ' ';
  }
  std::cerr << "shardscope: " << line << std::endl;
  return code;
}

std::vector<std::string> subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* s : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(s->get_name());
  return names;
}

std::vector<std::string> flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options()) {
    for (const std::string& name : o->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The words that were not understood, with the nearest that would have been.
int unexpected(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    const std::string word = app.remaining().empty() ? "" : app.remaining().front();
    if (!word.empty() && word[0] == '-') {
      return complain(kBadInput, fmt::format("{} stands before any command; name one first: {} (see shardscope --help)",
                                             word, fmt::join(subcommands(app), ", ")));
    }
    return complain(kBadInput, fmt::format("\"{}\" is not a command; nearest: {} (see shardscope --help)", word,
                                           nearest(word, subcommands(app))));
  }
  const CLI::App& command = *chosen.front();
  const std::string word = command.remaining().empty() ? "" : command.remaining().front();
  if (word.empty() || word[0] != '-') {
    return complain(kBadInput, fmt::format("[{}] \"{}\" is one word too many; see shardscope {} --help",
                                           command.get_name(), word, command.get_name()));
  }
  return complain(kBadInput,
                  fmt::format("[{}] {} is not a flag; nearest: {} (see shardscope {} --help)", command.get_name(), word,
                              nearest(word.substr(0, word.find('=')), flags(command)), command.get_name()));
}

int usage(const CLI::App& app, const CLI::ParseError& e) {
  if (e.get_exit_code() == 0) return app.exit(e, std::cout, std::cerr);  // --help, --version
  const auto chosen = app.get_subcommands();
  if (dynamic_cast<const CLI::ExtrasError*>(&e) || (chosen.empty() && !app.remaining().empty())) return unexpected(app);
  const std::string name = chosen.empty() ? "" : " " + chosen.front()->get_name();
  return complain(kBadInput, fmt::format("{}; see shardscope{} --help", e.what(), name));
}

void set_up(CLI::App& app) {
  app.set_version_flag("--version", fmt::format("shardscope {} ({})", shardscope_version(), git_revision()));
  app.footer(
      "Results go to standard output, progress and errors to standard error.\n"
      "Exit codes: 0 done, 1 ran and the verdict is negative, 2 bad input, 3 this machine cannot do it, 130 "
      "interrupted.\n\n"
      "Start here:\n"
      "  shardscope doctor                                  what works on this machine\n"
      "  shardscope run --wire 200us,2GB/s                  one case, and where its step time goes\n"
      "  shardscope sweep scripts/experiments/quickstart.yaml -o out/first && shardscope report out/first");
  app.require_subcommand(1);
  app.get_formatter()->column_width(46);
  add_run(app);
  add_sweep(app);
  add_report(app);
  add_analyze(app);
  add_plan(app);
  add_export(app);
  add_calibrate(app);
  add_recommend(app);
  add_compare(app);
  add_doctor(app);
}

int shardscope(int argc, char** argv) {
  CLI::App app(
      "Measures how much communication a fully sharded training step hides behind its computation: how to wrap a "
      "model, why a choice is slow, where it stops fitting.",
      "shardscope");
  set_command_words(argc, argv);
  try {
    set_up(app);
    if (argc == 1) {
      std::cout << app.help();
      return kBadInput;
    }
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& e) {
    return usage(app, e);
  } catch (const fsdp::EnvironmentError& e) {
    return complain(kCannotHere, e.what());
  } catch (const fsdp::ConfigError& e) {
    return complain(kBadInput, e.what());
  } catch (const fsdp::Error& e) {
    return complain(kNegative, e.what());
  } catch (const std::exception& e) {
    return complain(kNegative, fmt::format("{} (a bug of this program if the machine is well)", e.what()));
  }
}

}  // namespace

void ends_with(int code) { exit_code = code; }

void set_command_words(int argc, const char* const* argv) {
  words = "shardscope";
  for (int i = 1; i < argc; ++i) words += " " + shell_quoted(argv[i]);
}

std::string command_words() { return words; }

}  // namespace harness::cli

int main(int argc, char** argv) {
  const harness::cli::SafeOutput out(std::cout), err(std::cerr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, not a death without words
  return harness::cli::shardscope(argc, argv);
}
