// Samples made from known costs: the fit finds them again.
#include "harness/cost/fit_costs.h"

#include <gmock/gmock.h>

#include "harness/cost/cost_model.h"

namespace harness {
namespace {

constexpr double kMib = 1 << 20;

TEST(FitCosts, FindsTheCostsThatSamplesWereMadeOf) {
  OpCost truth;
  truth.t0_us = 2, truth.tflops = 0.2, truth.gb_s = 40, truth.cold_gb_s = 20;
  std::vector<OpSample> samples;
  for (const double cold : {0.0, 0.5, 0.9})
    for (const double rows : {16, 64, 256})
      for (const double width : {128, 512}) {
        OpSample s{"linear", {OpKind::kGemm, false, {gemm_part(1, rows, width, width, 4)}, 1}, 0, cold};
        s.us = op_time_us(truth, s.work.flops(), s.work.bytes(), cold);
        samples.push_back(s);
      }
  const OpCost found = fit_ops(samples).at("linear");
  for (const OpSample& s : samples)
    EXPECT_NEAR(op_time_us(found, s.work.flops(), s.work.bytes(), s.cold) / s.us, 1, 0.01);
  EXPECT_NEAR(found.cold_gb_s, 20, 2);
}

TEST(FitCosts, WithoutColdSamplesNothingIsSaidOfThem) {
  OpCost truth;
  truth.t0_us = 2, truth.gb_s = 40;
  std::vector<OpSample> samples;
  for (const double bytes : {1e4, 1e5, 1e6}) {
    OpSample s{"copy_", {OpKind::kCopy, false, {}, 1}, op_time_us(truth, 0, bytes), 0};
    s.work.parts.push_back({0, bytes});
    samples.push_back(s);
  }
  const OpCost found = fit_ops(samples).at("copy_");
  EXPECT_EQ(found.cold_gb_s, 0);
  EXPECT_NEAR(found.gb_s, 40, 1);
}

TEST(CostModel, ColdIsWhatTheCacheCannotHold) {
  Hardware h;
  EXPECT_EQ(cold_share(h, 1e9), 0) << "no cache is known";
  h.cache_mib = 32;
  EXPECT_EQ(cold_share(h, 31 * kMib), 0);
  EXPECT_EQ(cold_share(h, 128 * kMib), 0.75);
  EXPECT_EQ(step_bytes(1000, 2), 1000 * 4 * 8) << "in full: 2 of 2 ranks; once in shards: 4";
  OpCost c;
  c.t0_us = 1, c.gb_s = 10, c.cold_gb_s = 5;
  EXPECT_DOUBLE_EQ(op_time_us(c, 0, 1e4, 0.5), 1 + 1 + 0.5 * 2);
}

}  // namespace
}  // namespace harness
