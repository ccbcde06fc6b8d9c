#include "harness/cost/hardware.h"

#include <gmock/gmock.h>

#include <fstream>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "no refusal";
}

const std::string kSmall =
    "version: 1\nname: tiny\nops:\n  gemm_fp32: {tflops: 1}\n  attention: {tflops: 1}\n"
    "  elementwise: {gb_s: 10}\ncollectives:\n  all_gather:\n    - {devices: 2, gb_s: 1}\n";

TEST(Hardware, EveryPresetReadsAndReadsBackAsItself) {
  EXPECT_GE(hardware_presets().size(), 12u);
  for (const std::string& name : hardware_presets()) {
    const Hardware h = load_hardware(name);
    EXPECT_EQ(h.name, name);
    EXPECT_FALSE(h.assumed.empty()) << name << " says what is assumed";
    const Hardware again = parse_hardware(to_yaml(h), "again");
    EXPECT_EQ(to_yaml(again), to_yaml(h)) << name;
    EXPECT_TRUE(again == h) << name;
    if (!h.network.empty()) {
      EXPECT_GT(load_network(h.network).node_gb_s, 0);
    }
  }
}

// What NCCL takes of a GPU while it computes; a share of 1 would say that hiding communication never pays.
TEST(Hardware, ContentionOfAGpuHasPhysicalBounds) {
  for (const std::string& name : hardware_presets()) {
    const Hardware h = load_hardware(name);
    if (!h.gpu) continue;
    EXPECT_GE(h.contention, kLeastContention) << name;
    EXPECT_LE(h.contention, kMostContention) << name;
    EXPECT_GE(h.kernel_us, 1) << name;
    EXPECT_LE(h.kernel_us, 14) << name << ": a launch";
  }
}

TEST(Hardware, ACostOfUnitsOnTheDeviceIsRefused) {
  EXPECT_NO_THROW(parse_hardware(std::string(kSmall) + "device: {unit_pass_us: 0}\n", "x.yaml"))
      << "as calibrate wrote it";
  try {
    parse_hardware(std::string(kSmall) + "device: {unit_pass_us: 530}\n", "x.yaml");
    FAIL();
  } catch (const fsdp::ConfigError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("device.unit_pass_us"), HasSubstr("host.unit_pass_us")));
  }
}

TEST(Hardware, EveryNumberOfAFileOfCalibrateReadsBack) {
  Hardware h;
  h.name = "mine", h.source = "measured \"here\"", h.gpu = false;
  h.cache_mib = 32.5;
  h.usable_gib = 1, h.context_gib = 2, h.communicator_gib = 3, h.workspace_gib = 4, h.caching_allocator = true;
  h.node_devices = 5, h.network = "none-such";
  h.peak_bf16_tflops = 6, h.peak_fp32_tflops = 7;
  const OpCost cost{.t0_us = 8, .tflops = 9, .gb_s = 10, .p = 1.25, .cold_gb_s = 12.75, .traffic = 13};
  h.ops = {{"linear", cost}, {"attention", cost}, {"elementwise", cost}};
  h.all_gather = {{.devices = 2, .alpha_us = 14, .gb_s = 15, .floor_us = 16, .root_us = 17}};
  h.reduce_scatter = {{.devices = 2, .alpha_us = 18, .gb_s = 19, .floor_us = 20, .root_us = 21}};
  h.all_reduce = {{.devices = 2, .alpha_us = 22, .gb_s = 23, .floor_us = 24, .root_us = 25}};
  h.launch_us = 26, h.collective_us = 27, h.wake_us = 28, h.wire_late_us = 29.125;
  h.unit_pass_us = 31, h.kernel_us = 31.5, h.jitter = 0.125, h.early_stop = true;
  h.gemm_efficiency = 30, h.optimizer_us = 32, h.step_us = 33, h.contention = 34;
  h.expected_error = 0.35, h.expected_error_source = "runs";
  h.assumed = {"host", "copy"};
  const Hardware again = parse_hardware(to_yaml(h), "again");
  EXPECT_EQ(again.cache_mib, 32.5);
  EXPECT_EQ(again.ops.at("linear").cold_gb_s, 12.75);
  EXPECT_EQ(again.wire_late_us, 29.125);
  EXPECT_TRUE(again == h) << to_yaml(again);
}

TEST(Hardware, BudgetsUseTheMemoryThatTheDriverLeavesNotTheLabel) {
  EXPECT_DOUBLE_EQ(load_hardware("a100-40gb").usable_gib, 39.49);
  EXPECT_DOUBLE_EQ(load_hardware("b200").usable_gib, 178.35);
  EXPECT_EQ(load_hardware("v100-32gb").peak_bf16_tflops, 0) << "no bf16, so no utilisation";
}

TEST(Hardware, AnUnknownPresetNamesTheNearest) {
  EXPECT_THAT(refusal([] { load_hardware("h100"); }), AllOf(HasSubstr("'h100'"), HasSubstr("nearest: h100-")));
  for (const std::string& name : hardware_presets())
    EXPECT_THAT(refusal([] { load_hardware("foo"); }), HasSubstr(name)) << "nothing is near: all are named";
  EXPECT_THAT(refusal([] { load_network("aws-p4"); }), AllOf(HasSubstr("'aws-p4'"), HasSubstr("aws-p4d")));
  EXPECT_THAT(refusal([] { load_hardware("nowhere/mine.yaml"); }), HasSubstr("nowhere/mine.yaml does not exist"));
}

TEST(Hardware, AFileOfAnotherVersionIsRefused) {
  EXPECT_THAT(refusal([] { parse_hardware("version: 2\nname: x\n", "x.yaml"); }),
              AllOf(HasSubstr("x.yaml:1"), HasSubstr("[version] is 2"), HasSubstr("version 1")));
  EXPECT_THAT(refusal([] { parse_hardware("name: x\n", "x.yaml"); }), HasSubstr("[version] is missing"));
}

TEST(Hardware, NumbersAreFiniteAndNotNegative) {
  for (const std::string bad : {"-1", ".nan", ".inf", "fast"}) {
    const std::string text = kSmall + "host: {launch_us: " + bad + "}\n";
    EXPECT_THAT(refusal([&] { parse_hardware(text, "x.yaml"); }),
                AllOf(HasSubstr("x.yaml:10"), HasSubstr("host.launch_us")))
        << bad;
  }
  EXPECT_THAT(refusal([] { parse_hardware(kSmall + "device: {gemm_efficiency: 0}\n", "x.yaml"); }),
              HasSubstr("device.gemm_efficiency"));
}

TEST(Hardware, WrongKeysAndMissingPartsAreNamed) {
  EXPECT_THAT(refusal([] { parse_hardware(kSmall + "hosts: {}\n", "x.yaml"); }),
              AllOf(HasSubstr("[hosts] is not a key"), HasSubstr("host")));
  EXPECT_THAT(refusal([] { parse_hardware("version: 1\nops: {elementwise: {gb_s: 1}}\n", "x.yaml"); }),
              HasSubstr("no cost of a matrix product"));
  EXPECT_THAT(refusal([] { parse_hardware("version: [1", "x.yaml"); }), HasSubstr("not YAML"));
  EXPECT_THAT(refusal([] { parse_hardware("3", "x.yaml"); }), HasSubstr("not a mapping"));
}

TEST(Hardware, AFileIsReadByItsPath) {
  const std::string path = testing::TempDir() + "/tiny-hardware.yaml";
  std::ofstream(path) << kSmall;
  const Hardware h = load_hardware(path);
  EXPECT_EQ(h.name, "tiny");
  EXPECT_EQ(h.reduce_scatter.size(), 1u) << "as the all-gather, until it is measured";
}

}  // namespace
}  // namespace harness
