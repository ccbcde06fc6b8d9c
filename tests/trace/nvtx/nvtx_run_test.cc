// A real run on the CPU under an NVTX tool: what a person sees in Nsight Systems.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/call.h"
#include "tests/trace/nvtx/nvtx_log.h"

namespace harness {
namespace {

TEST(NvtxOfARun, EveryCollectiveOfEveryRankIsARangeWithItsUnitPassAndBytes) {
  const std::string directory = cli_test::fresh_directory("nvtx_run");
  const cli_test::Called run = cli_test::call({"run", "--set", "layers=2,dim=64,heads=4,kv_heads=4,ffn=128,vocab=256",
                                               "--seq", "16", "--steps", "2", "--warmup", "1", "--json"},
                                              {{"SHARDSCOPE_RANK", SHARDSCOPE_RANK_PROGRAM},
                                               {"NVTX_INJECTION64_PATH", SHARDSCOPE_NVTX_TOOL},
                                               {"SHARDSCOPE_NVTX_LOG", directory + ".log"}});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto result = nlohmann::json::parse(run.out);
  const auto units = result.at("units").get<std::size_t>();

  const auto logs = read_nvtx_logs(directory + ".log");
  ASSERT_EQ(logs.size(), 2u) << "one for each rank";
  for (const std::vector<NvtxEvent>& events : logs) {
    EXPECT_EQ(unbalanced(events), "");
    std::map<std::string, int> count;
    int collectives = 0, steps = 0;
    std::uint64_t root_bytes = 0;
    bool measured = false;
    for (const NvtxEvent& e : events) {
      if (e.what == "start") measured = e.name == "measured";
      if (e.what == "end") measured = false;
      if (e.what != "push") continue;
      ++count[e.name];
      steps += measured && e.name == "step";
      const bool unit = e.name.rfind("unit", 0) == 0;
      collectives += measured && unit && (e.category == 1 || e.category == 3);
      if (unit && (e.category == 1 || e.category == 3)) {
        EXPECT_GT(e.payload, 0u) << e.name;
      }
      if (e.name == "unit0.fwd.all_gather") root_bytes = e.payload;
    }
    EXPECT_EQ(steps, 2);
    EXPECT_EQ(collectives, 2 * result.at("collectives").get<int>());
    for (std::size_t unit = 0; unit < units; ++unit) {
      const std::string name = "unit" + std::to_string(unit);
      EXPECT_EQ(count[name + ".fwd.all_gather"], 5) << name;  // warm-up, two measured untraced, two traced
      EXPECT_EQ(count[name + ".bwd.reduce_scatter"], 5) << name;
    }
    EXPECT_EQ(root_bytes % (2 * 4), 0u) << "padded for two ranks of fp32";
  }
}

}  // namespace
}  // namespace harness
