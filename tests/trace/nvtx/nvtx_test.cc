#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "fsdp/core/clock.h"
#include "fsdp/device/ranges.h"
#include "harness/analysis/annotations.h"
#include "harness/trace/nvtx_names.h"
#include "harness/trace/nvtx_ranges.h"
#include "tests/testing/shell.h"
#include "tests/trace/nvtx/nvtx_log.h"

namespace harness {
namespace {

using fsdp::Pass;
using fsdp::SpanKind;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing_support::shell_word;

TEST(RangeName, HoldsUnitPassAndPhase) {
  EXPECT_EQ(range_name({SpanKind::kAllGather, 3, Pass::kBackward, 64}), "unit3.bwd.all_gather");
  EXPECT_EQ(range_name({SpanKind::kCompute, 0, Pass::kForward, 0}), "unit0.fwd.compute");
  EXPECT_EQ(range_name({SpanKind::kAllReduce, fsdp::kNoUnit, Pass::kOptimizer, 8}), "model.opt.all_reduce");
  EXPECT_EQ(range_name({SpanKind::kOptimizer, fsdp::kNoUnit, Pass::kOptimizer, 0}), "Optimizer.step");
  EXPECT_EQ(range_name({SpanKind::kStep, fsdp::kNoUnit, Pass::kNone, 0}), "step");
}

// Nsight's export is read back by these names.
TEST(RangeName, IsUnderstoodByTheReadersOfTraces) {
  const std::array phases = {std::pair(SpanKind::kCompute, Phase::kCompute), std::pair(SpanKind::kCopy, Phase::kCopy),
                             std::pair(SpanKind::kAllGather, Phase::kAllGather),
                             std::pair(SpanKind::kReduceScatter, Phase::kReduce),
                             std::pair(SpanKind::kAllReduce, Phase::kReduce)};
  for (const auto& [kind, phase] : phases) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      const std::string name = range_name({kind, 12, pass, 0});
      const AnnotationMeaning m = meaning_of(name);
      EXPECT_EQ(m.kind, AnnotationKind::kOwn) << name;
      EXPECT_EQ(m.phase, phase) << name;
      EXPECT_EQ(m.pass, pass) << name;
      EXPECT_EQ(m.unit, "unit12") << name;
    }
  }
  EXPECT_EQ(meaning_of("step").kind, AnnotationKind::kStep);
  EXPECT_EQ(meaning_of(range_name({SpanKind::kOptimizer, fsdp::kNoUnit, Pass::kOptimizer, 0})).kind,
            AnnotationKind::kOptimizer);
}

TEST(RangeName, CategoriesOfPhasesDiffer) {
  std::set<std::uint32_t> ids;
  const std::array kinds = {SpanKind::kCompute,         SpanKind::kOptimizer,     SpanKind::kCopy,
                            SpanKind::kAllGather,       SpanKind::kReduceScatter, SpanKind::kAllReduce,
                            SpanKind::kOtherCollective, SpanKind::kWait,          SpanKind::kStep};
  for (const SpanKind kind : kinds) ids.insert(range_category(kind).id);
  EXPECT_EQ(ids.size(), kinds.size());
}

TEST(RangesWanted, WhenAskedForOrWhenAToolIsThere) {
  std::map<std::string, std::string> variables;
  const auto wanted = [&] {
    return ranges_wanted([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_FALSE(wanted());
  variables["NVTX_INJECTION64_PATH"] = "/opt/tool.so";
  EXPECT_TRUE(wanted());
  variables["SHARDSCOPE_NVTX"] = "0";
  EXPECT_FALSE(wanted());
  variables = {{"SHARDSCOPE_NVTX", "1"}};
  EXPECT_TRUE(wanted());
  variables = {{"NSYS_PROFILING_SESSION_ID", "7"}};
  EXPECT_TRUE(wanted());
}

// Writes down what it is told.
class Log final : public fsdp::RangeSink {
 public:
  void push(const fsdp::WorkTag& tag, int step) noexcept override {
    lines.push_back("push " + range_name(tag) + " " + std::to_string(step));
  }
  void pop() noexcept override { lines.push_back("pop"); }
  std::vector<std::string> lines;
};

TEST(HostRanges, AContextEndsBeforeItsStepAndRepeatsAreOne) {
  Log log;
  fsdp::HostRanges ranges(&log);
  const fsdp::WorkTag compute{SpanKind::kCompute, 1, Pass::kForward, 0}, copy{SpanKind::kCopy, 1, Pass::kForward, 8};
  ranges.context(compute);  // outside a step: nothing
  ranges.begin_step(4);
  ranges.context(compute);
  ranges.context(compute);
  ranges.context(copy);
  ranges.end_step();
  ranges.end_step();
  EXPECT_THAT(log.lines,
              ElementsAre("push step 4", "push unit1.fwd.compute 4", "pop", "push unit1.fwd.copy 4", "pop", "pop"));
}

TEST(HostRanges, AStepThatIsNotEndedEndsWithTheNextOrWithTheDevice) {
  Log log;
  {
    fsdp::HostRanges ranges(&log);
    ranges.begin_step(0);
    ranges.context({SpanKind::kCompute, 1, Pass::kForward, 0});
    ranges.begin_step(1);
  }
  EXPECT_THAT(log.lines, ElementsAre("push step 0", "push unit1.fwd.compute 0", "pop", "pop", "push step 1", "pop"));
}

TEST(HostRanges, WithoutASinkNothingIsTold) {
  fsdp::HostRanges ranges(nullptr);
  ranges.begin_step(0);
  ranges.context({SpanKind::kCompute, 1, Pass::kForward, 0});
  ranges.end_step();
  EXPECT_EQ(ranges.sink(), nullptr);
}

// The player in a process of its own: NVTX looks for a tool once a process.
struct Played {
  std::string said;
  std::vector<std::vector<NvtxEvent>> logs;
};
Played play(const std::string& variables, const std::string& argument = "") {
  const std::string prefix = testing::TempDir() + "nvtx_log_" + std::to_string(fsdp::steady_now());
  const std::string command =
      "env -u NVTX_INJECTION64_PATH -u NSYS_PROFILING_SESSION_ID -u SHARDSCOPE_NVTX SHARDSCOPE_NVTX_LOG=" +
      shell_word(prefix) + " " + variables + " " + shell_word(SHARDSCOPE_NVTX_PLAYER) +
      (argument.empty() ? "" : " " + shell_word(argument));
  Played out;
  std::FILE* pipe = popen(command.c_str(), "r");
  char line[100] = {};
  if (std::fgets(line, sizeof line, pipe)) out.said = line;
  EXPECT_EQ(pclose(pipe), 0);
  out.logs = read_nvtx_logs(prefix);
  return out;
}

const std::string kWithTool = "NVTX_INJECTION64_PATH=" + shell_word(SHARDSCOPE_NVTX_TOOL);

TEST(NvtxRanges, AToolSeesUnitPassAndBytesOfEveryRange) {
  const Played played = play(kWithTool);
  EXPECT_EQ(played.said, "ranges\n");
  ASSERT_EQ(played.logs.size(), 1u);
  const std::vector<NvtxEvent>& events = played.logs.front();
  EXPECT_EQ(unbalanced(events), "");
  std::map<std::string, int> count;
  std::map<std::string, std::uint64_t> payload;
  std::map<std::string, unsigned> category;
  for (const NvtxEvent& e : events) {
    EXPECT_EQ(e.domain, kNvtxDomain);
    if (e.what != "push") continue;
    ++count[e.name];
    payload[e.name] = e.payload;
    category[e.name] = e.category;
  }
  const std::map<std::string, int> expected = {{"step", 2},
                                               {"unit0.fwd.all_gather", 2},
                                               {"unit1.fwd.all_gather", 2},
                                               {"unit0.fwd.compute", 2},
                                               {"unit1.fwd.compute", 2},
                                               {"unit1.bwd.reduce_scatter", 2},
                                               {"Optimizer.step", 2}};
  EXPECT_EQ(count, expected);
  EXPECT_EQ(payload["unit0.fwd.all_gather"], 1024u);
  EXPECT_EQ(payload["unit1.fwd.all_gather"], 2048u);
  EXPECT_EQ(payload["unit1.bwd.reduce_scatter"], 2048u);
  EXPECT_EQ(payload["step"], 1u);  // the last one's number
  EXPECT_EQ(category["unit0.fwd.all_gather"], range_category(SpanKind::kAllGather).id);
}

TEST(NvtxRanges, CollectivesAreOnTheThreadOfTheirLane) {
  const Played played = play(kWithTool);
  ASSERT_EQ(played.logs.size(), 1u);
  std::map<std::string, std::set<int>> threads;
  for (const NvtxEvent& e : played.logs.front())
    if (e.what == "push") threads[e.name].insert(e.thread);
  EXPECT_EQ(threads["unit0.fwd.all_gather"].size(), 1u);
  EXPECT_NE(threads["unit0.fwd.all_gather"], threads["step"]);
  EXPECT_NE(threads["unit1.bwd.reduce_scatter"], threads["unit0.fwd.all_gather"]);
}

TEST(NvtxRanges, TheMeasuredRangeHoldsTheMeasuredStepAlone) {
  const Played played = play(kWithTool);
  ASSERT_EQ(played.logs.size(), 1u);
  std::vector<std::string> order;
  for (const NvtxEvent& e : played.logs.front()) {
    if (e.what == "start") order.push_back(e.name);
    if (e.what == "end") order.push_back("end");
    if (e.what == "push" && e.name == "step") order.push_back("step " + std::to_string(e.payload));
  }
  EXPECT_THAT(order, ElementsAre("step 0", "measured", "step 1", "end"));
}

TEST(NvtxRanges, MarksSayWhichModuleAUnitIs) {
  const Played played = play(kWithTool);
  ASSERT_EQ(played.logs.size(), 1u);
  std::vector<std::string> marks;
  for (const NvtxEvent& e : played.logs.front())
    if (e.what == "mark") marks.push_back(e.name);
  EXPECT_THAT(marks, ElementsAre("unit0 = root", "unit1 = model.layers.0"));
}

TEST(NvtxRanges, WithoutAToolThereAreNoneAndWithSwitchOffToo) {
  EXPECT_EQ(play("").said, "no ranges\n");
  const Played off = play(kWithTool + " SHARDSCOPE_NVTX=0");
  EXPECT_EQ(off.said, "no ranges\n");
  EXPECT_TRUE(off.logs.empty());
  EXPECT_EQ(play("SHARDSCOPE_NVTX=1").said, "ranges\n");
}

TEST(NvtxRanges, AToolThatCannotBeLoadedDisturbsNothing) {
  EXPECT_EQ(play("NVTX_INJECTION64_PATH=/nonexistent/tool.so").said, "ranges\n");
}

TEST(NvtxRanges, AUnitThatWasNotNamedIsARangeOfNoUnit) {
  const Played played = play(kWithTool, "unit 7");
  ASSERT_EQ(played.logs.size(), 1u);
  EXPECT_EQ(unbalanced(played.logs.front()), "");
  std::vector<std::string> seen;
  for (const NvtxEvent& e : played.logs.front())
    if (e.what == "push" && e.payload == 77) seen.push_back(e.name);
  EXPECT_THAT(seen, ElementsAre("model.fwd.compute"));
}

}  // namespace
}  // namespace harness
