// Ctrl-C and SIGTERM as a flag that long work looks at.
#pragma once
#include <atomic>

namespace harness::cli {

// From now on the first SIGINT or SIGTERM sets the flag, the second ends the program at once with code 130.
const std::atomic<bool>& catch_interrupts();

}  // namespace harness::cli
