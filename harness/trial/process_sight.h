// What the system tells of a process of this host, whether or not it answers.
#pragma once
#include <sys/types.h>

#include <cstdint>

namespace harness {

struct ProcessSight {
  bool known = false;      // false: no such process, or nobody has looked
  bool stopped = false;    // by SIGSTOP and its like, or by a debugger
  std::int64_t ticks = 0;  // processor time of its main thread so far, in clock ticks
};
ProcessSight sight_of(pid_t pid);

// Kills a process that is stopped and runs the program of this one: it can end neither itself nor by SIGTERM.
void end_if_stopped(pid_t pid) noexcept;

}  // namespace harness
