// Traces that PyTorch FSDP makes on this machine (two ranks, Gloo): units by name, collectives by count.
#include <sys/wait.h>

#include <cstdlib>

#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

// Makes the trace; says why not where this Python has LibTorch, but no whole PyTorch.
class FsdpTrace : public ::testing::Test {
 protected:
  void make(const std::string& kind, const std::string& option = "") {
    out_ = temporary("fsdp-" + kind + option);
    const std::string command = shell_word(SHARDSCOPE_PYTHON) + " " + shell_word(SHARDSCOPE_MAKE_FSDP_TRACE) + " " +
                                kind + " " + shell_word(out_) + " " + option + " >" + shell_word(out_ + ".said") +
                                " 2>&1";
    const int status = std::system(command.c_str());
    const std::string said = read_file(out_ + ".said");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << said;
    ASSERT_EQ(status, 0) << command << "\n" << said;
  }
  std::string out_;
};

// Two whole steps; the ranges of Gloo are those of the calls: of the root and three blocks, whose blocks are gathered
// again in backward, 14 gathers and 8 reductions in two steps. A rank that waits computes nothing meanwhile.
void hold_to_what_was_issued(const RowAnalysis& row) {
  EXPECT_EQ(row.steps_counted, 2u);
  for (const ForeignStep& s : row.partition.steps) EXPECT_EQ(sum(s.partition.classes), s.length());
  std::int64_t gathers = 0, reduces = 0;
  for (const UnitMetrics& m : row.partition.units) {
    if (m.unit == fsdp::kNoUnit) {
      EXPECT_EQ(m.all_gathers + m.reduce_scatters, 0);
    }
    gathers += m.all_gathers, reduces += m.reduce_scatters;
  }
  EXPECT_EQ(gathers, 14);
  EXPECT_EQ(reduces, 8);
  EXPECT_EQ(row.total.partition.communication_hidden, 0);
  EXPECT_GT(column(row.total, PartitionClass::kCompute), 0);
  EXPECT_GT(column(row.total, PartitionClass::kOptimizer), 0);
}

std::map<std::string, std::string> issued(const std::string& out, int rank) {
  std::map<std::string, std::string> rows;
  const TraceAnalysis a = analyze({out + "/rank" + std::to_string(rank) + ".json"});
  EXPECT_EQ(a.outcome, TraceOutcome::kClean) << to_text(a);
  EXPECT_EQ(a.files[0].rank, rank);
  EXPECT_EQ(a.files[0].facts.world, 2);
  EXPECT_EQ(a.files[0].facts.backend, "gloo");
  EXPECT_EQ(a.rows.size(), 1u);
  for (const RowAnalysis& row : a.rows) hold_to_what_was_issued(row);
  for (const IssuedCollectives& i : a.files[0].issued) {
    rows[a.files[0].unit_names->at(static_cast<std::size_t>(i.unit)) + " " + std::string(fsdp::name_of(i.pass))] =
        std::to_string(i.all_gathers) + " " + std::to_string(i.reduce_scatters);
  }
  return rows;
}

// Two steps. The root is kept after forward: it is gathered once a step; every unit is reduced once a step.
TEST_F(FsdpTrace, Fsdp2UnitsAreNamedAsModules) {
  make("fsdp2");
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(issued(out_, 1), (std::map<std::string, std::string>{{"[root] forward", "2 0"},
                                                                 {"[root] backward", "0 2"},
                                                                 {"layers.0 forward", "2 0"},
                                                                 {"layers.0 backward", "2 2"},
                                                                 {"layers.1 forward", "2 0"},
                                                                 {"layers.1 backward", "2 2"},
                                                                 {"layers.2 forward", "2 0"},
                                                                 {"layers.2 backward", "2 2"}}));
}

TEST_F(FsdpTrace, Fsdp1UnitsAreToldByOrder) {
  make("fsdp1");
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(issued(out_, 0), (std::map<std::string, std::string>{{"unit 0 (root) forward", "2 0"},
                                                                 {"unit 0 (root) backward", "0 2"},
                                                                 {"unit 1 forward", "2 0"},
                                                                 {"unit 1 backward", "2 2"},
                                                                 {"unit 2 forward", "2 0"},
                                                                 {"unit 2 backward", "2 2"},
                                                                 {"unit 3 forward", "2 0"},
                                                                 {"unit 3 backward", "2 2"}}));
}

// With Python's stacks the profiler writes class and number of each module that is called.
TEST_F(FsdpTrace, Fsdp1UnitsAreNamedAsModulesWhereStacksWereRecorded) {
  make("fsdp1", "--stack");
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(issued(out_, 1), (std::map<std::string, std::string>{{"Model_0 (root) forward", "2 0"},
                                                                 {"Model_0 (root) backward", "0 2"},
                                                                 {"Block_0 forward", "2 0"},
                                                                 {"Block_0 backward", "2 2"},
                                                                 {"Block_1 forward", "2 0"},
                                                                 {"Block_1 backward", "2 2"},
                                                                 {"Block_2 forward", "2 0"},
                                                                 {"Block_2 backward", "2 2"}}));
}

}  // namespace
}  // namespace harness::testing
