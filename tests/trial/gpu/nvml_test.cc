#include "harness/trial/gpu/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "fsdp/core/clock.h"
#include "harness/trial/gpu/gpu_watch.h"
#include "tests/testing/time.h"

namespace harness {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::unique_ptr<Nvml> fake(const char* is, std::string* said = nullptr) {
  setenv("SHARDSCOPE_NVML", FAKE_NVML_LIBRARY, 1);
  setenv("FAKE_NVML", is, 1);
  std::string why;
  auto nvml = Nvml::open(why);
  if (said) *said = why;
  return nvml;
}

TEST(Nvml, SaysWhatTheGpusAre) {
  const auto nvml = fake("");
  ASSERT_TRUE(nvml);
  EXPECT_EQ(nvml->driver(), "580.65.06");
  EXPECT_EQ(nvml->cuda_version(), 13000);
  ASSERT_EQ(nvml->gpus().size(), 2u);
  const GpuFacts& g = nvml->gpus()[1];
  EXPECT_EQ(g.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(g.uuid, "GPU-1");
  EXPECT_EQ(g.memory_bytes, 85'899'345'920);
  EXPECT_EQ(g.max_sm_mhz, 1980u);
  EXPECT_EQ(g.power_limit_mw, 700'000u);
  EXPECT_EQ(g.nvlinks, 18u);
  EXPECT_EQ(g.mig, false);
}

TEST(Nvml, AReadingHasWhatTheGpuTellsAndNothingElse) {
  const GpuReading full = fake("throttle")->read(0);
  EXPECT_EQ(full.sm_mhz, 1755u);
  EXPECT_EQ(full.memory_mhz, 2619u);
  EXPECT_EQ(full.temperature_c, 61u);
  EXPECT_EQ(full.throttle_reasons, 4u);
  EXPECT_TRUE(full.energy_mj.has_value());
  const GpuReading old = fake("old")->read(0);
  EXPECT_EQ(old.power_mw, 650'000u);
  EXPECT_FALSE(old.energy_mj.has_value());
  EXPECT_FALSE(old.power_capped_ns.has_value());
  const auto lost = fake("lost=1");
  EXPECT_EQ(lost->gpus()[1].name, "");
  EXPECT_FALSE(lost->read(1).sm_mhz.has_value());
  EXPECT_TRUE(lost->read(0).sm_mhz.has_value());
}

TEST(Nvml, TopologyIsOneLine) {
  EXPECT_EQ(topology_text(*fake("")), "NVLink");
  EXPECT_EQ(topology_text(*fake("gpus=8")), "all NVLink");
  EXPECT_EQ(topology_text(*fake("gpus=4 pcie")), "all PHB");
  EXPECT_EQ(topology_text(*fake("gpus=1")), "");
}

TEST(Nvml, AnAbsentOrRefusingDriverIsASentenceWithARemedy) {
  std::string why;
  setenv("SHARDSCOPE_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
  EXPECT_FALSE(Nvml::open(why));
  EXPECT_THAT(why, HasSubstr("--gpus all"));
  EXPECT_FALSE(fake("init=9", &why));
  EXPECT_THAT(why, HasSubstr("modprobe nvidia"));
  EXPECT_FALSE(fake("init=4", &why));
  EXPECT_THAT(why, HasSubstr("may not open"));
  EXPECT_FALSE(fake("init=18", &why));
  EXPECT_THAT(why, HasSubstr("restart the machine"));
  EXPECT_FALSE(fake("init=999", &why));
  EXPECT_THAT(why, HasSubstr("NVML 999"));
}

TEST(ThrottleWords, IdlingAndSetClocksAreNoThrottle) {
  EXPECT_THAT(throttle_words(0x1 | 0x2 | 0x100), IsEmpty());
  EXPECT_THAT(throttle_words(0x4 | 0x40), ElementsAre("power cap", "heat, by the hardware"));
}

GpuHistory two_seconds() {
  GpuHistory g;
  g.index = 3;
  g.facts.max_sm_mhz = 1980;
  GpuReading idle, busy, hot;
  idle.sm_mhz = 345, idle.throttle_reasons = 1, idle.temperature_c = 40, idle.energy_mj = 1'000'000;
  busy.sm_mhz = 1980, busy.memory_mhz = 2619, busy.throttle_reasons = 0, busy.temperature_c = 60;
  hot.sm_mhz = 1755, hot.memory_mhz = 2619, hot.throttle_reasons = 4, hot.temperature_c = 71, hot.energy_mj = 2'200'000;
  g.readings = {idle, busy, hot};
  return g;
}

TEST(GpuReport, ClocksAreThoseOfBusyTimesAndPowerIsEnergyOverTime) {
  GpuReport out;
  report_gpu(two_seconds(), 2'000'000'000, out);
  EXPECT_THAT(
      out.fields,
      UnorderedElementsAre(Pair("machine.gpu3.sm_mhz", "1755..1980 of 1980"), Pair("machine.gpu3.memory_mhz", "2619"),
                           Pair("machine.gpu3.power_w", "600"), Pair("machine.gpu3.temperature_c", "71"),
                           Pair("machine.gpu3.throttled", "50.0 % of the time (power cap)")));
  EXPECT_THAT(out.warnings, ElementsAre("throttled: GPU 3 was slowed 50 % of the time (power cap)"));
}

TEST(GpuReport, CountersOfTimeDecideWhereTheGpuHasThem) {
  GpuHistory g = two_seconds();
  g.readings.front().power_capped_ns = 500, g.readings.back().power_capped_ns = 4'000'500;
  GpuReport out;
  report_gpu(g, 2'000'000'000, out);
  EXPECT_EQ(out.fields["machine.gpu3.throttled"], "0.2 % of the time (power cap)");
  EXPECT_THAT(out.warnings, IsEmpty());
}

TEST(GpuReport, ASilentGpuHasNoFields) {
  GpuHistory g;
  g.readings.resize(3);
  GpuReport out;
  report_gpu(g, 1'000'000'000, out);
  EXPECT_THAT(out.fields, IsEmpty());
  report_gpu(GpuHistory{}, 0, out);
  EXPECT_THAT(out.fields, IsEmpty());
}

TEST(GpuWatch, NamesTheGpusTheDriverAndTheTopology) {
  GpuWatch watch(fake("gpus=2"));
  const GpuReport r = watch.finish();
  EXPECT_EQ(r.fields.at("gpu"), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(r.fields.at("gpu_count"), "2");
  EXPECT_EQ(r.fields.at("gpu_driver"), "580.65.06");
  EXPECT_EQ(r.fields.at("gpu_topology"), "NVLink");
  EXPECT_EQ(r.fields.at("machine.gpu1.sm_mhz"), "1755 of 1980");
  EXPECT_EQ(r.fields.at("machine.gpu1.throttled"), "no");
  EXPECT_THAT(r.warnings, IsEmpty());
}

TEST(GpuWatch, WithoutGpusThereIsNoKeyAtAll) {
  EXPECT_THAT(GpuWatch(fake("gpus=0")).finish().fields, IsEmpty());
  setenv("SHARDSCOPE_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
  EXPECT_THAT(GpuWatch().finish().fields, IsEmpty());
}

// Threads of this process.
std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

TEST(GpuWatch, OneThatIsNotFinishedEndsItsThread) {
  const std::ptrdiff_t before = threads();
  {
    GpuWatch watch(fake(""));
    EXPECT_EQ(threads(), before + 1);
  }
  // The kernel lists a thread for a moment after it was joined.
  const fsdp::Nanos deadline = fsdp::steady_now() + testing_support::kPatience;
  while (threads() > before && fsdp::steady_now() < deadline) fsdp::sleep_until(fsdp::steady_now() + 1'000'000);
  EXPECT_EQ(threads(), before);
}

}  // namespace
}  // namespace harness
