// What else happened on the machine while a case ran: throttling, stolen time, other load. Read before and after; the
// difference becomes fields of the environment and, where it matters, a warning.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

struct MachineState {
  std::int64_t at_ns = 0;                 // steady clock
  std::int64_t cgroup_throttled_us = -1;  // by a CPU quota; -1: not told
  std::int64_t cgroup_throttles = -1;
  std::int64_t steal_ticks = -1;  // of all cores, by a hypervisor
  std::int64_t all_ticks = -1;
  std::int64_t thermal_throttles = -1;  // of all cores
  double load = -1;                     // runnable processes, mean of a minute
  double mhz = -1;                      // mean of the cores' clocks
};

// `root` stands for "/": tests give a directory of their own. What cannot be read stays -1.
MachineState read_machine_state(const std::string& root = "");

struct MachineChange {
  std::map<std::string, std::string>
      fields;                         // "machine.throttled_us", "machine.load", ...: they never decide a comparison
  std::vector<std::string> warnings;  // "throttled: ..." where time was lost
};
MachineChange machine_change(const MachineState& before, const MachineState& after, int cores);

}  // namespace harness
