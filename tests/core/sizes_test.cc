#include "fsdp/core/sizes.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(ReadableBytes, TakesTheUnitThatLeavesAtMostFourDigitsBeforeThePoint) {
  EXPECT_EQ(readable_bytes(0), "0 B");
  EXPECT_EQ(readable_bytes(1023), "1023 B");
  EXPECT_EQ(readable_bytes(1024), "1.00 KiB");
  EXPECT_EQ(readable_bytes(360448), "352.00 KiB");
  EXPECT_EQ(readable_bytes(115343360), "110.00 MiB");
  EXPECT_EQ(readable_bytes((Bytes{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(readable_bytes(Bytes{3} << 41), "6.00 TiB");
  EXPECT_EQ(readable_bytes(-1536), "-1.50 KiB");
}

}  // namespace
}  // namespace fsdp
