// HolisticTraceAnalysis reads the traces that we write.
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "harness/trace/chrome_writer.h"
#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

using fsdp::Lane;
using fsdp::Pass;
using fsdp::Span;
using fsdp::SpanKind;

class HolisticTraceAnalysis : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(SHARDSCOPE_HTA_PYTHON)) {
      GTEST_SKIP() << "no python with HolisticTraceAnalysis at " << SHARDSCOPE_HTA_PYTHON
                   << "; make one with pip install HolisticTraceAnalysis and say -DSHARDSCOPE_HTA_PYTHON=<its python>";
    }
  }
  static nlohmann::json load(const std::string& path) {
    const std::string out = temporary("hta.out");
    const std::string command = shell_word(SHARDSCOPE_HTA_PYTHON) + " -W ignore " + shell_word(SHARDSCOPE_LOAD_IN_HTA) +
                                " " + shell_word(path) + " > " + shell_word(out) + " 2> " + shell_word(out + ".err");
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(out + ".err");
    const std::string text = read_file(out);
    return nlohmann::json::parse(text.substr(text.rfind('{')));
  }
};

// It rounds each begin up and each end down to a microsecond, so up to 1 us of each of the 3,774 operations is lost.
TEST_F(HolisticTraceAnalysis, ReadsAnAnnotatedTrace) {
  AnalyzeOptions o;
  o.paths = {data("kineto/ddp_2rank_a100.json.gz")};
  o.perfetto = temporary("for-hta.json");
  const TraceAnalysis a = analyze_traces(o);
  const nlohmann::json seen = load(o.perfetto);
  EXPECT_EQ(seen["operations"], a.rows.at(0).partition.whole.operations);
  EXPECT_NEAR(seen["kernel_time_us"].get<double>(), 660'551.005, 1.5);
  EXPECT_NEAR(seen["idle_us"].get<double>(), 503'050.991, 3774);
  EXPECT_NEAR(seen["overlap_pct"].get<double>(), 15.14, 0.05) << "what it says of the trace itself";
}

// Whole microseconds: nothing is lost. It takes communication from kernels' names, and ours are not NCCL's: no overlap.
TEST_F(HolisticTraceAnalysis, ReadsOurOwnTrace) {
  std::vector<Span> spans;
  auto add = [&](SpanKind kind, Lane lane, fsdp::Nanos begin_us, fsdp::Nanos end_us) {
    Span s;
    s.id = static_cast<std::uint32_t>(spans.size() + 1);
    s.kind = kind, s.lane = lane, s.unit = 0, s.pass = Pass::kForward;
    s.issued = s.begin = 1000 * begin_us, s.end = 1000 * end_us;
    spans.push_back(s);
  };
  add(SpanKind::kAllGather, Lane::kAllGather, 0, 20);
  add(SpanKind::kCompute, Lane::kCompute, 20, 70);
  add(SpanKind::kAllGather, Lane::kAllGather, 30, 60);
  add(SpanKind::kCompute, Lane::kCompute, 80, 95);
  add(SpanKind::kStep, Lane::kHost, 0, 95);
  const std::string path = temporary("own-for-hta.json");
  write_chrome_trace(path, spans, {"embed"});
  const nlohmann::json seen = load(path);
  EXPECT_EQ(seen["operations"], 4);
  EXPECT_EQ(seen["kernel_time_us"], 95);
  EXPECT_EQ(seen["idle_us"], 10);
  EXPECT_TRUE(seen["overlap_pct"].is_null());
}

}  // namespace
}  // namespace harness::testing
