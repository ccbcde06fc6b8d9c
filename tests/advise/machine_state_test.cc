#include "harness/advise/machine_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace harness {
namespace {

namespace fs = std::filesystem;

void put(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(MachineState, ReadsWhatIsThereAndLeavesTheRest) {
  const std::string root = testing::TempDir() + "machine_" + std::to_string(::getpid());
  put(root + "/sys/fs/cgroup/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 7000\n");
  put(root + "/proc/stat", "cpu  100 0 50 800 10 0 5 35 0 0\ncpu0 1 2 3\n");
  put(root + "/proc/loadavg", "0.50 0.40 0.30 1/100 5\n");
  put(root + "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "2\n");
  put(root + "/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "3\n");
  put(root + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3000000\n");
  put(root + "/sys/devices/system/cpu/cpufreq/x", "1\n");
  const MachineState s = read_machine_state(root);
  EXPECT_EQ(s.cgroup_throttled_us, 7000);
  EXPECT_EQ(s.cgroup_throttles, 3);
  EXPECT_EQ(s.steal_ticks, 35);
  EXPECT_EQ(s.all_ticks, 1000);
  EXPECT_EQ(s.thermal_throttles, 5);
  EXPECT_DOUBLE_EQ(s.mhz, 3000);
  EXPECT_DOUBLE_EQ(s.load, 0.5);
  fs::remove_all(root);
  const MachineState none = read_machine_state(root);
  EXPECT_EQ(none.cgroup_throttled_us, -1);
  EXPECT_EQ(none.steal_ticks, -1);
  EXPECT_TRUE(machine_change(none, none, 2).fields.empty());
}

TEST(MachineState, ALossThatMattersIsAWarningAndASmallOneIsNot) {
  MachineState a, b;
  a.cgroup_throttled_us = 0, b.at_ns = 1'000'000'000;
  b.cgroup_throttled_us = 5'000;
  EXPECT_TRUE(machine_change(a, b, 2).warnings.empty());
  b.cgroup_throttled_us = 50'000;
  EXPECT_THAT(machine_change(a, b, 2).warnings, testing::ElementsAre(testing::HasSubstr("throttled: the CPU quota")));
  EXPECT_EQ(machine_change(a, b, 2).fields.at("machine.throttled_us"), "50000");
  a.mhz = 3000, b.mhz = 2500;
  EXPECT_EQ(machine_change(a, b, 2).warnings.size(), 2u);
  a.load = 14;
  EXPECT_EQ(machine_change(a, b, 2).fields.at("machine.load"), "14.00");
}

}  // namespace
}  // namespace harness
