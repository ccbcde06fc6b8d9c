#include "harness/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "harness/cli/commands.h"

namespace harness::cli {
namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the handler touches it");

void on_signal(int) {
  if (stop.exchange(true)) _exit(kInterrupted);
}

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return stop;
}

}  // namespace harness::cli
