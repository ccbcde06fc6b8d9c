#include "fsdp/core/memory_meter.h"

#include <gtest/gtest.h>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

TEST(MemoryMeter, PeakNamesWhatWasRunningAndTheLargestCategory) {
  MemoryMeter m;
  m.add(10, MemoryCategory::kParameters);
  m.set_context({2, Pass::kBackward});
  m.add(30, MemoryCategory::kUnsharded);
  m.sub(30, MemoryCategory::kUnsharded);
  m.set_context({1, Pass::kForward});
  m.add(5, MemoryCategory::kActivations);
  EXPECT_EQ(m.peak().total, 40);
  EXPECT_EQ(m.live(), 15);
  EXPECT_EQ(m.peak_cause(), "unit 2, backward, unsharded parameters");
  EXPECT_EQ(m.peak_by_category()[static_cast<int>(MemoryCategory::kActivations)], 5);
}

TEST(MemoryMeter, PassingTheBudgetThrowsAndCountsNothing) {
  MemoryMeter m;
  m.set_budget(100);
  m.add(100, MemoryCategory::kParameters);
  m.set_context({0, Pass::kForward});
  try {
    m.add(1, MemoryCategory::kReduce);
    FAIL() << "no exception";
  } catch (const OutOfMemory& e) {
    EXPECT_EQ(e.cause, "unit 0, forward, reduce buffers");
    EXPECT_EQ(e.requested, 1);
    EXPECT_EQ(e.live, 100);
    EXPECT_EQ(e.budget, 100);
  }
  EXPECT_EQ(m.live(), 100);
}

}  // namespace
}  // namespace fsdp
