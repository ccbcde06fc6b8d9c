#include "fsdp/comm/local_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace fsdp {
namespace {

TEST(LocalKernels, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie, down to even
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // a tie, up to even
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);  // overflows to infinity
  EXPECT_EQ(float_to_bfloat16(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(LocalKernels, EveryBFloat16SurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bfloat16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(float_to_bfloat16(value), bits);
  }
}

TEST(LocalKernels, SumsRunInRankOrder) {
  const float large = 1.0e8f, one = 1.0f, minus = -1.0e8f;
  const void* in[] = {&large, &minus, &one};
  float out = 0;
  sum_ranks({in, 3, Dtype::kFloat32, &out, Dtype::kFloat32, 1});
  EXPECT_EQ(out, 1.0f);
  const void* other_order[] = {&large, &one, &minus};
  sum_ranks({other_order, 3, Dtype::kFloat32, &out, Dtype::kFloat32, 1});
  EXPECT_EQ(out, 0.0f);
}

TEST(LocalKernels, TheSumMayBeWrittenOverAnInput) {
  for (const int ranks : {1, 2, 3}) {
    for (int over = 0; over < ranks; ++over) {
      std::vector<std::vector<float>> inputs;
      for (int r = 0; r < ranks; ++r) inputs.emplace_back(5000, static_cast<float>(r + 1));
      std::vector<const void*> in;
      for (auto& v : inputs) in.push_back(v.data());
      auto& out = inputs[static_cast<std::size_t>(over)];
      sum_ranks({in.data(), ranks, Dtype::kFloat32, out.data(), Dtype::kFloat32, 5000, 2.0f});
      EXPECT_THAT(out, ::testing::Each(static_cast<float>(ranks * (ranks + 1))));
    }
  }
}

}  // namespace
}  // namespace fsdp
