// The commands of `shardscope`. Each adds its subcommand with flags, help and callback; a callback throws, or
// ends_with() a code when the result is no success.
#pragma once

namespace CLI {
class App;
}

namespace harness::cli {

enum ExitCode { kDone = 0, kNegative = 1, kBadInput = 2, kCannotHere = 3, kInterrupted = 130 };

// The exit code once the command is done; the last call counts.
void ends_with(int code);

void add_run(CLI::App& app);
void add_sweep(CLI::App& app);
void add_report(CLI::App& app);
void add_analyze(CLI::App& app);
void add_plan(CLI::App& app);
void add_export(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_recommend(CLI::App& app);
void add_compare(CLI::App& app);
void add_doctor(CLI::App& app);

}  // namespace harness::cli
