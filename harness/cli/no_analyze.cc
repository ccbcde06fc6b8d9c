// Stands in where the trace readers are not built: no command.
#include "harness/cli/commands.h"

namespace harness::cli {
void add_analyze(CLI::App&) {}
}  // namespace harness::cli
