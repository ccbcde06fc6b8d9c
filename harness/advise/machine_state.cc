#include "harness/advise/machine_state.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "fsdp/core/clock.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
constexpr double kLostShare = 0.005;  // of the time: below it a throttle is not worth a warning
constexpr double kClockDrop = 0.05;

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// The number after `name` at the begin of a line.
std::int64_t field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t value = -1;
    if (words >> key >> value && key == name) return value;
  }
  return -1;
}

void read_cgroup(MachineState& s, const std::string& root) {
  for (const char* path : {"/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"}) {
    const std::string text = text_of(root + path);
    if (text.empty()) continue;
    s.cgroup_throttles = field(text, "nr_throttled");
    s.cgroup_throttled_us = field(text, "throttled_usec");
    if (const std::int64_t ns = field(text, "throttled_time"); s.cgroup_throttled_us < 0 && ns >= 0)
      s.cgroup_throttled_us = ns / 1000;
    return;
  }
}

void read_ticks(MachineState& s, const std::string& root) {
  std::istringstream words(text_of(root + "/proc/stat"));
  std::string cpu;
  if (!(words >> cpu) || cpu != "cpu") return;
  std::int64_t all = 0, value = 0;
  for (int i = 0; i < 8 && words >> value; ++i) {
    all += value;
    if (i == 7) s.steal_ticks = value;
  }
  s.all_ticks = all;
}

void read_cores(MachineState& s, const std::string& root) {
  std::error_code error;
  double mhz = 0;
  int clocks = 0;
  for (const auto& entry : fs::directory_iterator(root + "/sys/devices/system/cpu", error)) {
    const std::string name = entry.path().filename();
    if (name.rfind("cpu", 0) != 0 || name.find_first_not_of("0123456789", 3) != std::string::npos || name.size() == 3)
      continue;
    std::istringstream throttles(text_of(entry.path() / "thermal_throttle/core_throttle_count"));
    std::istringstream clock(text_of(entry.path() / "cpufreq/scaling_cur_freq"));
    if (std::int64_t n; throttles >> n) s.thermal_throttles = std::max<std::int64_t>(0, s.thermal_throttles) + n;
    if (double khz; clock >> khz) mhz += khz / 1000, ++clocks;
  }
  if (clocks > 0) s.mhz = mhz / clocks;
}

}  // namespace

MachineState read_machine_state(const std::string& root) {
  MachineState s;
  s.at_ns = fsdp::steady_now();
  read_cgroup(s, root);
  read_ticks(s, root);
  read_cores(s, root);
  std::istringstream load(text_of(root + "/proc/loadavg"));
  if (double l; load >> l) s.load = l;
  return s;
}

MachineChange machine_change(const MachineState& a, const MachineState& b, int cores) {
  MachineChange out;
  const double elapsed_us = static_cast<double>(b.at_ns - a.at_ns) / 1000;
  if (a.cgroup_throttled_us >= 0 && b.cgroup_throttled_us >= 0) {
    const std::int64_t lost = b.cgroup_throttled_us - a.cgroup_throttled_us;
    out.fields["machine.throttled_us"] = std::to_string(lost);
    if (elapsed_us > 0 && static_cast<double>(lost) > kLostShare * elapsed_us * cores)
      out.warnings.push_back(fmt::format("throttled: the CPU quota of this container held its processes for {:.0f} ms",
                                         static_cast<double>(lost) / 1000));
  }
  if (a.thermal_throttles >= 0 && b.thermal_throttles >= 0) {
    const std::int64_t n = b.thermal_throttles - a.thermal_throttles;
    out.fields["machine.thermal_throttles"] = std::to_string(n);
    if (n > 0) out.warnings.push_back(fmt::format("throttled: the cores were slowed {} times for heat", n));
  }
  if (a.steal_ticks >= 0 && b.steal_ticks >= 0 && b.all_ticks > a.all_ticks) {
    const double share =
        static_cast<double>(b.steal_ticks - a.steal_ticks) / static_cast<double>(b.all_ticks - a.all_ticks);
    out.fields["machine.steal"] = fmt::format("{:.4f}", share);
    if (share > kLostShare)
      out.warnings.push_back(fmt::format("throttled: {:.1f} % of the cores' time went to other guests", 100 * share));
  }
  if (a.mhz > 0 && b.mhz > 0) {
    out.fields["machine.mhz"] = fmt::format("{:.0f} -> {:.0f}", a.mhz, b.mhz);
    if (b.mhz < a.mhz * (1 - kClockDrop))
      out.warnings.push_back(fmt::format("throttled: the cores' clock fell from {:.0f} to {:.0f} MHz", a.mhz, b.mhz));
  }
  if (a.load >= 0) {
    out.fields["machine.load"] = fmt::format("{:.2f}", a.load);
  }
  return out;
}

}  // namespace harness
