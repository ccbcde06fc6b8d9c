// Check values: presets of the published tables, by hand.
#include "harness/cost/cost_model.h"

#include <gmock/gmock.h>

#include "fsdp/core/errors.h"
#include "harness/cost/straggler.h"

namespace harness {
namespace {

using fsdp::CollectiveKind;

double gemm_us(const std::string& preset, double m, double n, double k) {
  const OpPart p = gemm_part(1, m, n, k, 2);
  return op_time_us(load_hardware(preset).ops.at("gemm_bf16"), p.flops, p.bytes);
}

TEST(CostModel, ProductsTakeWhatThePublishedFitSays) {
  EXPECT_NEAR(gemm_us("h100-sxm", 2048, 4096, 4096), 91.73, 0.05);
  EXPECT_NEAR(gemm_us("h100-sxm", 4096, 14336, 4096), 606.84, 0.3);
  EXPECT_NEAR(gemm_us("b200", 2048, 4096, 4096), 52.11, 0.05);
  EXPECT_NEAR(gemm_us("b200", 4096, 14336, 4096), 326.56, 0.2);
  EXPECT_NEAR(gemm_us("mi300x", 2048, 4096, 4096), 131.25, 0.1);
  EXPECT_NEAR(gemm_us("mi300x", 4096, 14336, 4096), 832.12, 0.4);
}

TEST(CostModel, CollectivesOfALlamaBlockOnOneNode) {
  const CostModel m = make_cost_model("h100-sxm", 8, 0, "");
  const GroupShape g = m.topology().shard(8);
  EXPECT_NEAR(static_cast<double>(m.collective(CollectiveKind::kAllGather, 436'224'000, g)), 1'180'500, 200);
  EXPECT_NEAR(static_cast<double>(m.collective(CollectiveKind::kReduceScatter, 872'448'000, g)), 2'495'600, 400);
  EXPECT_EQ(m.collective(CollectiveKind::kAllGather, 8, g), 32'200) << "never less than alpha or floor";
  EXPECT_EQ(m.collective(CollectiveKind::kAllGather, 1e9, m.topology().shard(1)), 0);
}

TEST(CostModel, AcrossNodesTheNetworkIsTheWire) {
  const CostModel one = make_cost_model("h100-sxm", 8, 0, ""), two = make_cost_model("h100-sxm", 16, 0, ""),
                  slow = make_cost_model("h100-sxm", 16, 0, "aws-p4d");
  const auto ag = [](const CostModel& m, double bytes) {
    return static_cast<double>(m.collective(CollectiveKind::kAllGather, bytes, m.topology().shard(m.topology().world)));
  };
  // min(332.4, 0.8*400) GB/s; 32.2 + 60 + 14 + 7*3.4 us
  EXPECT_NEAR(ag(two, 1.6e9), 130'000 + 1.5e9 / 320, 2);
  EXPECT_NEAR(ag(slow, 1.6e9), 130'000 + 1.5e9 / 40, 2);
  EXPECT_LT(ag(one, 1.6e9), ag(two, 1.6e9));
}

TEST(CostModel, ARingPassesEveryRank) {
  const auto latency = [](int world) {
    const CostModel m = make_cost_model("h100-sxm", world, 0, "");
    return static_cast<double>(m.collective(CollectiveKind::kAllGather, 8, m.topology().shard(world)));
  };
  EXPECT_NEAR(latency(512) - latency(128), 48 * (14 + 7 * 3.4) * 1e3, 5) << "48 more nodes";
}

TEST(CostModel, ASlowerNetworkDoesNotSlowTheComputationBesideIt) {
  const CostModel fast = make_cost_model("h100-sxm", 16, 0, ""), slow = make_cost_model("h100-sxm", 16, 0, "aws-p4d");
  const auto busy = [](const CostModel& m) {
    return m.contending(CollectiveKind::kAllGather, 1.6e9, m.topology().shard(16));
  };
  EXPECT_EQ(busy(fast), busy(slow));
  EXPECT_LT(busy(slow), slow.collective(CollectiveKind::kAllGather, 1.6e9, slow.topology().shard(16)) / 4);
  EXPECT_EQ(fast.contending(CollectiveKind::kAllGather, 1e9, fast.topology().shard(1)), 0);
}

TEST(Straggler, TheSlowestOfManyIsFurtherFromTheMean) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959964, 1e-5);
  EXPECT_EQ(expected_maximum(1), 0);
  // Tables of the expected largest of n normal variables.
  EXPECT_NEAR(expected_maximum(2), 0.5642, 2e-3);
  EXPECT_NEAR(expected_maximum(10), 1.5388, 2e-3);
  EXPECT_NEAR(expected_maximum(100), 2.5076, 2e-3);
  EXPECT_NEAR(expected_maximum(1000), 3.2414, 2e-3);
  EXPECT_GT(expected_maximum(16384), expected_maximum(8192));
}

TEST(CostModel, ReplicasOfANodeShareItsNetwork) {
  const CostModel m = make_cost_model("h100-sxm", 64, 0, "");
  const GroupShape shard = m.topology().shard(8), replica = m.topology().replica(8);
  EXPECT_EQ(shard.nodes, 1);
  EXPECT_EQ(replica.ranks, 8);
  EXPECT_EQ(replica.nodes, 8);
  EXPECT_EQ(replica.beside, 7);
  // 2 * 7/8 of the bytes over an eighth of 0.8 * 400 GB/s
  const double ns = static_cast<double>(m.collective(CollectiveKind::kAllReduce, 8e8, replica));
  EXPECT_NEAR(ns, 2 * (7e8 / 40) + 1e3 * (21.6 + 20.1 + 2 * (60 + 7 * 14)), 5);
}

TEST(CostModel, AWorldOfManyNodesNeedsANetwork) {
  EXPECT_THROW(make_cost_model("mi300x", 16, 0, ""), fsdp::ConfigError);
  EXPECT_NO_THROW(make_cost_model("mi300x", 8, 0, ""));
  EXPECT_NO_THROW(make_cost_model("mi300x", 16, 0, "aws-p5"));
  EXPECT_NO_THROW(make_cost_model("mi300x", 16, 16, ""));
}

TEST(CostModel, WhatADeviceHasForTensors) {
  const CostModel m = make_cost_model("h100-sxm", 8, 0, "");
  constexpr double kGib = 1 << 30;
  EXPECT_EQ(m.memory_for_tensors(2), static_cast<fsdp::Bytes>(79.11 * kGib) - 3 * (fsdp::Bytes{1} << 30));
  EXPECT_EQ(m.memory_extras(1).total(), fsdp::Bytes{2} << 30);
}

TEST(CostModel, SixteenBitProductsNeedARateForThem) {
  const CostModel m = make_cost_model("v100-16gb", 4, 0, "");
  OpWork w{OpKind::kGemm, true, {gemm_part(1, 64, 64, 64, 2)}, 1};
  EXPECT_THROW(m.op("linear", w), fsdp::ConfigError);
  w.half = false;
  EXPECT_GT(m.op("linear", w), 0);
}

TEST(OpWork, CountsTheOperationsOfABlock) {
  const TensorShape x{{2, 128, 64}, 4}, w{{256, 64}, 4}, y{{2, 128, 256}, 4};
  const OpWork forward = work_of({"linear", {x, w, {}}, {y}, {}});
  EXPECT_EQ(forward.flops(), 2.0 * 256 * 64 * 256);
  EXPECT_EQ(forward.bytes(), 4.0 * (256 * 64 + 64 * 256 + 256 * 256));
  const OpWork backward = work_of({"linear_backward", {y, x, w}, {x, w}, {0}});
  EXPECT_EQ(backward.flops(), 2 * forward.flops());
  EXPECT_EQ(backward.parts.size(), 2u);

  const TensorShape q{{2, 128, 64}, 4}, k{{2, 128, 32}, 4};
  const OpWork causal = work_of({"attention", {q, k, k}, {q}, {4, 2, 1}});
  EXPECT_EQ(causal.flops(), 2.0 * 2 * 128 * 128 * 64);
  EXPECT_EQ(work_of({"attention", {q, k, k}, {q}, {4, 2, 0}}).flops(), 2 * causal.flops());
  EXPECT_EQ(work_of({"attention_backward", {q, q, k, k, q, x}, {q, k, k}, {4, 2, 1}}).flops(), 2.5 * causal.flops());
}

TEST(OpWork, ATableCostsTheRowsThatAreLookedUp) {
  const TensorShape table{{1'000'000, 256}, 4}, ids{{2, 128}, 8}, rows{{2, 128, 256}, 4};
  EXPECT_EQ(work_of({"embedding", {table, ids}, {rows}, {}}).bytes(), 2 * rows.bytes());
}

TEST(OpWork, ViewsAreFreeAndUnknownOperatorsAreElementWise) {
  const TensorShape x{{4, 4}, 4};
  EXPECT_EQ(work_of({"view", {x}, {x}, {}}).kind, OpKind::kFree);
  const OpWork relu = work_of({"relu", {x}, {x}, {}});
  EXPECT_EQ(relu.kind, OpKind::kElementwise);
  EXPECT_EQ(relu.bytes(), 2 * 64.0);
}

}  // namespace
}  // namespace harness
