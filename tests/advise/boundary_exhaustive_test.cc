// On real ranks with a memory budget: the boundary that the search finds is the one that trying every value finds.
#include <gtest/gtest.h>

#include <filesystem>

#include "harness/store/store.h"
#include "tests/cli/call.h"

namespace {

using cli_test::call;
using harness::Status;

std::map<std::string, Status> statuses(const std::string& spec) {
  const std::string dir = cli_test::fresh_directory("boundary");
  std::filesystem::create_directories(dir);
  cli_test::write_file(dir + "/s.yaml", spec);
  const cli_test::Called c =
      call({"sweep", dir + "/s.yaml", "-o", dir + "/out"}, {{"SHARDSCOPE_RANK", SHARDSCOPE_RANK_PROGRAM}});
  EXPECT_EQ(c.code, 0) << c.err;
  std::map<std::string, Status> out;
  for (const harness::CaseRecord& r : harness::Store::open(dir + "/out").read_cases())
    out[r.axes.back().second] = r.status;
  std::filesystem::remove_all(dir);
  return out;
}

void expect_equal_to_exhaustive(const std::string& setting, int to, int bound, const std::string& budget) {
  const std::string base = "base: {set: {layers: 4, dim: 64}, seq: 64, steps: 1, warmup: 1, memory_budget: " + budget +
                           "}\nrepeat: {min: 1, max: 1}\ntrace: none\n";
  std::string values;
  for (int v = 1; v <= to; ++v) values += (v > 1 ? ", " : "") + std::to_string(v);
  const auto every = statuses(base + "axes: {" + setting + ": [" + values + "]}\n");
  const auto searched = statuses(base + "boundary: {setting: " + setting + ", values: [" + values + "], check: 0}\n");
  int trials = 0, fits = 0, last_fit = 0;
  for (int v = 1; v <= to; ++v) {
    fits += harness::measured(every.at(std::to_string(v)));
    const Status s = searched.at(std::to_string(v));
    trials += s != Status::kSkipped;
    if (harness::measured(s)) last_fit = v;
  }
  EXPECT_GT(fits, 0);
  EXPECT_LT(fits, to) << "the budget is no test";
  EXPECT_EQ(last_fit, fits);
  EXPECT_EQ(searched.at(std::to_string(fits + 1)), Status::kOom) << "both ends are measured";
  EXPECT_LE(trials, bound);
}

TEST(BoundaryOnRealRanks, EqualsExhaustiveSearchOverTheBatch) { expect_equal_to_exhaustive("batch", 16, 5, "20MiB"); }

}  // namespace
