// Our own traces, written and read back: the partition is the run's, to the nanosecond.
#include "fsdp/core/errors.h"
#include "harness/trace/chrome_writer.h"
#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

using fsdp::Lane;
using fsdp::Pass;
using fsdp::Span;
using fsdp::SpanKind;

std::vector<Span> two_ranks() {
  std::vector<Span> out;
  for (int rank = 0; rank < 2; ++rank) {
    const fsdp::Nanos z = 5'000'000'000'123 + 1000 * rank;
    auto add = [&](SpanKind k, Lane l, int unit, Pass p, fsdp::Nanos b, fsdp::Nanos e,
                   std::vector<std::uint32_t> waits = {}) {
      Span s;
      s.id = static_cast<std::uint32_t>(out.size() + 1);
      s.rank = rank, s.kind = k, s.lane = l, s.unit = unit, s.pass = p;
      s.issued = z, s.begin = z + b, s.end = z + e, s.waits = std::move(waits);
      s.bytes = 4096;
      out.push_back(s);
      return s.id;
    };
    const auto g0 = add(SpanKind::kAllGather, Lane::kAllGather, 0, Pass::kForward, 0, 2);
    const auto g1 = add(SpanKind::kAllGather, Lane::kAllGather, 1, Pass::kForward, 2, 4);
    add(SpanKind::kCompute, Lane::kCompute, 0, Pass::kForward, 2, 7, {g0});
    add(SpanKind::kCompute, Lane::kCompute, 1, Pass::kForward, 7, 12 + rank, {g1});
    add(SpanKind::kStep, Lane::kHost, fsdp::kNoUnit, Pass::kNone, 0, 12 + rank);
  }
  return out;
}

TEST(OwnTrace, ReadsBackToTheSamePartition) {
  const std::string path = temporary("own.json.gz");
  const std::vector<Span> spans = two_ranks();
  write_chrome_trace(path, spans, {"embed", "layers.0"});
  const TraceAnalysis a = analyze({path});
  EXPECT_EQ(a.outcome, TraceOutcome::kClean);
  ASSERT_EQ(a.rows.size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<Span> own;
    for (const Span& s : spans) {
      if (s.rank == rank) own.push_back(s);
    }
    const StepPartition expected = partition_steps(own).at(0);
    const RowAnalysis& r = a.rows[static_cast<std::size_t>(rank)];
    EXPECT_EQ(r.rank, rank);
    EXPECT_EQ(r.total.partition.classes, expected.classes);
    EXPECT_EQ(r.partition.steps.at(0).partition.begin, expected.begin);
    EXPECT_EQ(r.total.partition.communication, expected.communication);
  }
  const nlohmann::json j = nlohmann::json::parse(to_json(a));
  EXPECT_EQ(j["rows"][0]["units"][0]["unit"], "embed");
  EXPECT_EQ(j["rows"][0]["partition"]["exposed_all_gather_forward_ns"], 2);
  EXPECT_EQ(j["rows"][0]["critical_stretch"]["length_ns"], 2);
  EXPECT_EQ(j["rows"][0]["critical_stretch"]["unit"], "embed");
}

// Rank 0: gathers [0, 2) and [2, 4), compute [2, 12). In flight 4, of which 2 under compute.
TEST(OwnTrace, OtherConventionsSayWhatTheirToolsWould) {
  const std::string path = temporary("own2.json");
  write_chrome_trace(path, two_ranks(), {"a", "b"});
  const TraceLensTimes t = *analyze({path}, Convention::kTraceLens).rows.at(0).tracelens;
  EXPECT_EQ(t.compute, 10);
  EXPECT_EQ(t.exposed_communication, 2);
  EXPECT_EQ(t.hidden_communication, 2);
  EXPECT_EQ(t.idle, 0);
  EXPECT_EQ(t.span, 12);
  const NsysTimes n = *analyze({path}, Convention::kNsys).rows.at(0).nsys;
  EXPECT_EQ(n.compute_only, 8);
  EXPECT_EQ(n.communication_only, 2);
  EXPECT_EQ(*n.overlap_pct, 50);
  AnalyzeOptions o;
  o.paths = {path};
  o.convention = Convention::kHta;
  o.hta_round = false;
  const HtaResult h = *analyze_traces(o).rows.at(0).hta;
  EXPECT_EQ(h.compute, 10);
  EXPECT_EQ(h.non_compute, 2);
  EXPECT_EQ(h.idle, 0);
  EXPECT_EQ(*h.overlap_pct, 50);
}

// Of one unit's compute two pieces differ in size: each is compared with its own like in the other step.
TEST(OwnTrace, ComputeBesideCommunicationIsComparedPieceByPieceOverSteps) {
  std::vector<Span> spans;
  auto add = [&](int step, SpanKind k, Lane l, fsdp::Nanos b, fsdp::Nanos e) {
    Span s;
    s.id = static_cast<std::uint32_t>(spans.size() + 1);
    s.step = step, s.kind = k, s.lane = l, s.unit = k == SpanKind::kStep ? fsdp::kNoUnit : 0;
    s.pass = Pass::kForward, s.issued = s.begin = b, s.end = e;
    spans.push_back(s);
  };
  for (const int step : {0, 1}) {
    const fsdp::Nanos z = 1000 * step;
    add(step, SpanKind::kCompute, Lane::kCompute, z, z + 100);
    add(step, SpanKind::kCompute, Lane::kCompute, z + 100, z + 110 + 2 * step);
    add(step, SpanKind::kStep, Lane::kHost, z, z + 1000);
  }
  const std::string path = temporary("own4.json");
  write_chrome_trace(path, spans, {"a"});
  EXPECT_FALSE(analyze({path}).rows.at(0).partition.slowdown.has_value()) << "no communication";
  add(1, SpanKind::kAllGather, Lane::kAllGather, 1100, 1112);
  write_chrome_trace(path, spans, {"a"});
  const std::optional<Slowdown> s = analyze({path}).rows.at(0).partition.slowdown;
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->kernels, 1);
  EXPECT_DOUBLE_EQ(s->ratio(), 1.2);
}

// Hiding the first gather moves the first compute from 2 to 0, and the second, whose gather ends at 4, with it.
TEST(OwnTrace, SaysByHowMuchTheStepWouldBeShorter) {
  const std::string path = temporary("own3.json");
  write_chrome_trace(path, two_ranks(), {"embed", "layers.0"});
  const TraceAnalysis a = analyze({path});
  const nlohmann::json j = nlohmann::json::parse(to_json(a))["rows"][1];
  EXPECT_EQ(j["savings_exact"], true);
  ASSERT_EQ(j["savings"].size(), 1u);
  EXPECT_EQ(j["savings"][0]["unit"], "embed");
  EXPECT_EQ(j["savings"][0]["saved_ns"], 2);
  EXPECT_EQ(j["findings"][0]["saved_ns"], 2);
  EXPECT_NE(to_text(a).find("the step would be 0.002 us (16.7 %) shorter"), std::string::npos) << to_text(a);
}

TEST(Perfetto, AnAnnotatedTraceParsesAndItsPartitionTilesTheSpan) {
  AnalyzeOptions o;
  o.paths = {data("kineto/ddp_2rank_a100.json.gz")};
  o.perfetto = temporary("annotated.json.gz");
  const TraceAnalysis a = analyze_traces(o);
  const nlohmann::json trace = nlohmann::json::parse(read_text(o.perfetto));
  double total = 0;
  std::size_t operations = 0;
  for (const nlohmann::json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    if (e["cat"] == "partition") {
      total += e["dur"].get<double>();
    } else {
      ++operations;
    }
  }
  EXPECT_NEAR(total, 660'551.005, 0.001);
  EXPECT_EQ(operations, a.files[0].operations);
}

}  // namespace
}  // namespace harness::testing
