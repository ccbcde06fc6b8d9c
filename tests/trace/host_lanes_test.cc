// Traces of ranks on the CPU, written by hand: the partition in closed form.
#include "fsdp/core/errors.h"
#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

constexpr int kStep = 7, kGloo = 8;

class CpuRank : public KinetoText {
 public:
  CpuRank() { members = R"("schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2})"; }
  void op(const std::string& name, int begin, int end, int thread = kStep, const std::string& args = "{}") {
    event(R"({"ph": "X", "cat": "cpu_op", "name": ")" + name + R"(", "pid": 5, "tid": )" + std::to_string(thread) +
          R"(, "ts": )" + std::to_string(begin) + R"(, "dur": )" + std::to_string(end - begin) + R"(, "args": )" +
          args + "}");
  }
  void range(const std::string& name, int begin, int end, int thread = kStep) {
    annotation(name, std::to_string(begin), std::to_string(end - begin), thread);
  }
  // A gather of layers.0 whose bytes travel in [begin + 9, begin + 25), and its copies.
  void gather(int begin) {
    range("FSDP::pre_forward (layers.0)", begin + 5, begin + 40);
    range("FSDP::all_gather (layers.0)", begin + 5, begin + 30);
    op("fsdp::all_gather_copy_in", begin + 6, begin + 8);
    op("c10d::_allgather_base_", begin + 8, begin + 10, kStep,
       R"({"Input Dims": [[64], [32], []], "Input type": ["float", "float", ""]})");
    range("gloo:all_gather", begin + 9, begin + 25, kGloo);
    op("aten::copy_", begin + 10, begin + 12, kGloo);
    range("FSDP::all_gather_copy_out (layers.0)", begin + 30, begin + 38);
    op("fsdp::split_with_sizes_copy", begin + 31, begin + 36);
  }
};

CpuRank forward_and_optimizer() {
  CpuRank t;
  t.range("ProfilerStep#1", 0, 100);
  t.op("aten::embedding", 0, 5);
  t.gather(0);
  t.op("aten::linear", 40, 60);
  t.op("aten::mm", 42, 58);
  t.range("Optimizer.step#AdamW.step", 70, 90);
  t.op("aten::_fused_adamw_", 72, 88);
  return t;
}

const RowAnalysis& only_row(const TraceAnalysis& a) {
  EXPECT_EQ(a.rows.size(), 1u) << to_text(a);
  return a.rows.at(0);
}

TEST(HostLanes, OperatorsAreComputeAndGloosRangesAreInFlight) {
  const TraceAnalysis a = analyze({forward_and_optimizer().write("cpu_rank0.json")});
  EXPECT_EQ(a.outcome, TraceOutcome::kClean) << to_text(a);
  const RowAnalysis& row = only_row(a);
  EXPECT_EQ(classes(row.total.partition.classes),
            "compute 25000, exposed_all_gather_forward 16000, copy 7000, host 23000, optimizer 16000, idle 1000");
  EXPECT_EQ(sum(row.total.partition.classes), 88'000);
  EXPECT_EQ(row.total.length(), 88'000);
  ASSERT_EQ(row.unit_names->size(), 1u);
  EXPECT_EQ(row.unit_names->front(), "layers.0");
}

// A rank waits where it gathers: what the host did after it could have come as much earlier.
TEST(HostLanes, WhatIsExposedCouldBeSaved) {
  const TraceAnalysis a = analyze({forward_and_optimizer().write("cpu_saved_rank0.json")});
  const RowAnalysis& row = only_row(a);
  ASSERT_EQ(row.findings.size(), 1u);
  EXPECT_EQ(row.findings[0].ns, 16'000);
  EXPECT_EQ(row.findings[0].saved_ns, 16'000);
}

TEST(HostLanes, ACallTellsUnitBytesAndKindOfItsTransfer) {
  CpuRank t = forward_and_optimizer();
  t.range("gloo:all_gather", -20, -10, kGloo);  // of a call before the trace
  t.range("FSDP::post_backward_reduce (layers.0)", 61, 69);
  t.op("c10d::_reduce_scatter_base_", 62, 63, kStep,
       R"({"Input Dims": [[32], [64], []], "Input type": ["c10::BFloat16", "c10::BFloat16", ""]})");
  t.range("gloo:all_reduce", 63, 68, kGloo);
  const TraceAnalysis a = analyze({t.write("cpu_units_rank0.json")});
  std::string units;
  for (const UnitMetrics& m : only_row(a).partition.units) {
    units += std::to_string(m.unit) + " " + std::string(fsdp::name_of(m.pass)) + ": " + std::to_string(m.all_gathers) +
             " " + std::to_string(m.all_gather_bytes) + " " + std::to_string(m.reduce_scatters) + " " +
             std::to_string(m.reduce_scatter_bytes) + "\n";
  }
  EXPECT_EQ(units, "-1 none: 1 0 0 0\n0 forward: 1 256 0 0\n0 backward: 0 0 1 128\n");
}

TEST(HostLanes, ARowSaysThatItIsNoDevice) {
  const std::string path = forward_and_optimizer().write("cpu_said_rank0.json");
  const nlohmann::json j = analyze_json({path});
  EXPECT_TRUE(j["files"][0]["host_lanes"]);
  EXPECT_TRUE(j["rows"][0]["device"].is_null());
  const std::string text = to_text(analyze({path}));
  EXPECT_NE(text.find("\nCPU: 6 operators and transfers"), std::string::npos) << text;
  EXPECT_EQ(text.find("device 0"), std::string::npos) << text;
}

// The other tools count kernels of a device.
TEST(HostLanes, OtherToolsSayNothingOfIt) {
  const std::string path = forward_and_optimizer().write("cpu_convention_rank0.json");
  for (const Convention c : {Convention::kHta, Convention::kTraceLens, Convention::kNsys})
    EXPECT_THROW(analyze({path}, c), fsdp::ConfigError);
}

TEST(HostLanes, WithoutRangesOfFsdpThereIsNoPartition) {
  CpuRank t;
  t.op("aten::mm", 0, 5);
  t.op("c10d::allreduce_", 5, 6);
  t.range("gloo:all_reduce", 6, 9, kGloo);
  EXPECT_EQ(analyze({t.write("cpu_ddp_rank0.json")}).outcome, TraceOutcome::kNoDeviceActivity);
}

// Device work in the file is what counts, however much the host did.
TEST(HostLanes, ADeviceComesFirst) {
  CpuRank t = forward_and_optimizer();
  t.launch("41", "1", 3).kernel("gemm", 7, "45", "9", 3);
  const RowAnalysis row = only_row(analyze({t.write("cpu_and_gpu_rank0.json")}));
  EXPECT_EQ(row.device, 0);
  EXPECT_EQ(row.partition.whole.operations, 1);
}

}  // namespace
}  // namespace harness::testing
