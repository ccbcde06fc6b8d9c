#include "harness/trace/run_sorter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace harness {
namespace {

struct Record {
  std::uint64_t key, order;
};
struct ByKey {
  bool operator()(const Record& a, const Record& b) const {
    return std::pair(a.key, a.order) < std::pair(b.key, b.order);
  }
};

TEST(RunSorter, SortsWithinAndBeyondItsBudget) {
  for (std::size_t budget : {std::size_t{1} << 24, std::size_t{1} << 14, std::size_t{0}}) {
    RunSorter<Record, ByKey> sorter(budget);
    std::vector<Record> expected;
    std::mt19937 rng(3);
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      expected.push_back({rng() % 500, i});
      sorter.push(expected.back());
    }
    EXPECT_EQ(sorter.spilled(), budget < (1u << 20));
    std::sort(expected.begin(), expected.end(), ByKey());
    for (int round = 0; round < 2; ++round) {  // may be read again
      std::size_t i = 0;
      sorter.for_each([&](const Record& r) {
        ASSERT_LT(i, expected.size());
        ASSERT_EQ(r.key, expected[i].key);
        ASSERT_EQ(r.order, expected[i++].order);
      });
      EXPECT_EQ(i, expected.size());
    }
  }
}

TEST(RunSorter, NothingIsNothing) {
  RunSorter<Record, ByKey> sorter(0);
  sorter.for_each([](const Record&) { FAIL(); });
  EXPECT_EQ(sorter.size(), 0u);
}

}  // namespace
}  // namespace harness
