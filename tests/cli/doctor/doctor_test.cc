// What `doctor` says of machines unlike this one: findings are a pure function of facts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "harness/cli/machine.h"
#include "harness/trial/gpu/libraries.h"

namespace harness::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = Finding::Kind;

GpuFacts h100() {
  GpuFacts g;
  g.name = "NVIDIA H100 80GB HBM3";
  g.memory_bytes = 80ll << 30;
  g.power_limit_mw = 700'000;
  g.nvlinks = 18;
  g.mig = false;
  return g;
}

// A node with nothing wrong.
MachineFacts good_node() {
  MachineFacts f;
  f.host = {{"shardscope", "0.1.0"},
            {"git_revision", "abc"},
            {"kernel", "Linux"},
            {"cpu", "EPYC"},
            {"memory_bytes", "1073741824"}};
  f.cores = 128;
  f.vector_units = "avx2";
  f.shared_memory_free = 64ll << 30;
  f.rank = {"/opt/rank", true, 0,
            R"({"libtorch":"2.11.0","nccl":"2.28.9, /x/libnccl.so.2","cupti":"13.0.1, /x/libcupti.so.13"})", true};
  f.gpu.driver = "580.65.06";
  f.gpu.driver_cuda = 13000;
  f.gpu.gpus = std::vector<GpuFacts>(8, h100());
  f.gpu.topology = "all NVLink";
  f.gpu.counters_admin_only = false;
  f.gpu.nsys = "NVIDIA Nsight Systems version 2025.3.2";
  f.gpu.infiniband = {"mlx5_0"};
  f.gpu.gpu_direct = true;
  return f;
}

const Finding* find(const std::vector<Finding>& all, const std::string& name) {
  const auto f = std::find_if(all.begin(), all.end(), [&](const Finding& x) { return x.name == name; });
  return f == all.end() ? nullptr : &*f;
}
Finding the(const MachineFacts& f, const std::string& name) {
  const auto all = findings_of(f);
  const Finding* x = find(all, name);
  EXPECT_NE(x, nullptr) << name;
  return x ? *x : Finding{};
}

TEST(Doctor, AGoodNodeHasNothingToComplainOf) {
  const auto all = findings_of(good_node());
  for (const Finding& f : all) EXPECT_EQ(f.kind, Kind::kGood) << f.name << ": " << f.value;
  EXPECT_TRUE(can_run(all));
  EXPECT_EQ(the(good_node(), "gpus").value, "8 x NVIDIA H100 80GB HBM3, 80.00 GiB, 700 W");
  EXPECT_EQ(the(good_node(), "gpu driver").value, "580.65.06 (CUDA 13.0)");
  EXPECT_EQ(the(good_node(), "gpu links").value, "all NVLink");
  EXPECT_EQ(the(good_node(), "nccl").value, "2.28.9, /x/libnccl.so.2");
  EXPECT_EQ(the(good_node(), "fabric").value, "mlx5_0, GPUDirect (nvidia_peermem)");
}

TEST(Doctor, WithoutADriverTheNodesPartsAreAbsentAndTheCpuWorldWorks) {
  MachineFacts f = good_node();
  f.gpu = {};
  f.gpu.no_driver = "no NVIDIA driver (libnvidia-ml.so.1); install one";
  f.rank.cuda_module = false;
  f.rank.output = R"({"libtorch":"2.11.0","nccl":"","cupti":""})";
  const auto all = findings_of(f);
  EXPECT_TRUE(can_run(all));
  EXPECT_EQ(the(f, "gpu driver").kind, Kind::kAbsent);
  EXPECT_EQ(the(f, "gpu driver").value, "no NVIDIA driver (libnvidia-ml.so.1)");
  EXPECT_EQ(the(f, "gpu driver").remedy, "install one");
  EXPECT_EQ(the(f, "cuda").kind, Kind::kAbsent);
  EXPECT_EQ(the(f, "nccl").kind, Kind::kAbsent);
  EXPECT_EQ(the(f, "nsys").kind, Kind::kAbsent);
  EXPECT_EQ(find(all, "gpus"), nullptr);
  EXPECT_EQ(find(all, "gpu counters"), nullptr);
}

TEST(Doctor, ADriverThatIsTooOldForTorchIsNamedWithTheOneNeeded) {
  MachineFacts f = good_node();
  f.gpu.driver = "535.104", f.gpu.driver_cuda = 12020;
  EXPECT_EQ(the(f, "gpu driver").kind, Kind::kWarning);
  EXPECT_EQ(the(f, "gpu driver").value, "535.104 (CUDA 12.2)");
  EXPECT_THAT(the(f, "gpu driver").remedy, AllOf(HasSubstr("CUDA 13.0"), HasSubstr("580")));
}

TEST(Doctor, GpusThatDifferAnswerNotOrAreSplitAreWarnedAbout) {
  MachineFacts f = good_node();
  f.gpu.gpus[7].name = "NVIDIA A100-SXM4-80GB";
  EXPECT_EQ(the(f, "gpus").kind, Kind::kWarning);
  f = good_node();
  f.gpu.gpus[3] = {};
  const auto all = findings_of(f);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Finding& x) {
    return x.name == "gpus" && x.kind == Kind::kWarning && x.remedy.find("fallen off the bus") != std::string::npos;
  }));
  EXPECT_THAT(the(f, "nvlink").value, HasSubstr("GPU 3 has 0 of 18"));
  f = good_node();
  f.gpu.gpus[0].mig = true;
  EXPECT_EQ(the(f, "mig").kind, Kind::kWarning);
  f = good_node();
  f.gpu.gpus.clear();
  EXPECT_THAT(the(f, "gpus").remedy, HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(Doctor, LinksThatSlowCollectivesAreExplained) {
  MachineFacts f = good_node();
  f.gpu.topology = "NVLink 0-1 2-3, SYS 0-2 0-3";
  EXPECT_EQ(the(f, "gpu links").kind, Kind::kWarning);
  f.gpu.topology = "all PHB";
  EXPECT_EQ(the(f, "gpu links").kind, Kind::kGood);
  EXPECT_THAT(the(f, "gpu links").remedy, HasSubstr("PCIe"));
  f.gpu.gpus.resize(1);
  EXPECT_EQ(find(findings_of(f), "gpu links"), nullptr);
}

TEST(Doctor, CountersAreAllowedToAdministratorsOrToAll) {
  MachineFacts f = good_node();
  f.gpu.counters_admin_only = true;
  EXPECT_EQ(the(f, "gpu counters").kind, Kind::kWarning);
  EXPECT_THAT(the(f, "gpu counters").remedy, HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
  f.gpu.admin = true;
  EXPECT_EQ(the(f, "gpu counters").kind, Kind::kGood);
  f.gpu.admin = false, f.gpu.counters_admin_only.reset();
  EXPECT_EQ(the(f, "gpu counters").kind, Kind::kAbsent);
}

TEST(Doctor, AToolThatHoldsCuptiIsNamed) {
  MachineFacts f = good_node();
  f.gpu.other_profiler = "Nsight Systems holds CUPTI in this process";
  EXPECT_EQ(the(f, "profiler").kind, Kind::kWarning);
}

TEST(Doctor, ARankProgramWithoutItsTorchSaysSo) {
  MachineFacts f = good_node();
  f.rank.status = 127;
  f.rank.output = "/opt/rank: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file";
  EXPECT_EQ(the(f, "rank program").kind, Kind::kBroken);
  EXPECT_THAT(the(f, "rank program").remedy, HasSubstr("TORCH_DIR"));
  EXPECT_FALSE(can_run(findings_of(f)));
  f.rank.output = "shardscope: no LibTorch here";
  EXPECT_THAT(the(f, "rank program").remedy, HasSubstr("TORCH_DIR"));
  EXPECT_THAT(findings_text(findings_of(f)), HasSubstr("run and sweep cannot work here"));
  f.rank.executable = false;
  EXPECT_THAT(the(f, "rank program").value, HasSubstr("is not there"));
}

TEST(Doctor, VariablesThatEndOverlapAreWarnings) {
  MachineFacts f = good_node();
  f.host["env.CUDA_LAUNCH_BLOCKING"] = "1";
  f.host["env.NCCL_P2P_DISABLE"] = "0";
  EXPECT_EQ(the(f, "CUDA_LAUNCH_BLOCKING").kind, Kind::kWarning);
  EXPECT_EQ(the(f, "NCCL_P2P_DISABLE").kind, Kind::kGood);
}

TEST(Doctor, LittleSharedMemoryAndOneCoreAreWarnings) {
  MachineFacts f = good_node();
  f.cores = 1;
  f.shared_memory_free = 64ll << 20;
  EXPECT_EQ(the(f, "cores").kind, Kind::kWarning);
  EXPECT_THAT(the(f, "shared memory").remedy, HasSubstr("--shm-size"));
  f.shared_memory_free.reset();
  EXPECT_EQ(the(f, "shared memory").value, "no /dev/shm");
}

TEST(ProbeGpuFiles, ReadsTheDriversParametersCapabilitiesAndFabric) {
  const std::string root = testing::TempDir() + "doctor_root";
  namespace fs = std::filesystem;
  fs::remove_all(root);
  GpuNodeFacts none;
  probe_gpu_files(root, none);
  EXPECT_FALSE(none.counters_admin_only.has_value());
  EXPECT_FALSE(none.admin);

  fs::create_directories(root + "/proc/driver/nvidia");
  fs::create_directories(root + "/proc/self");
  fs::create_directories(root + "/sys/class/infiniband/mlx5_1");
  fs::create_directories(root + "/sys/class/infiniband/mlx5_0");
  fs::create_directories(root + "/sys/module/nvidia_peermem");
  std::ofstream(root + "/proc/driver/nvidia/params") << "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n";
  std::ofstream(root + "/proc/self/status") << "Name:\tx\nCapEff:\t0000000000200000\n";
  GpuNodeFacts g;
  probe_gpu_files(root, g);
  EXPECT_EQ(g.counters_admin_only, true);
  EXPECT_TRUE(g.admin);
  EXPECT_EQ(g.infiniband, (std::vector<std::string>{"mlx5_0", "mlx5_1"}));
  EXPECT_TRUE(g.gpu_direct);
}

TEST(LibraryVersions, AreWrittenAsPeopleDo) {
  EXPECT_EQ(cupti_version_text(130001), "13.0.1");
  EXPECT_EQ(cupti_version_text(26), "API 26");
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

}  // namespace
}  // namespace harness::cli
