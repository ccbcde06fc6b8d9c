// Real traces, to the last digit: what independent integer arithmetic over the whole files gives.
#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

constexpr const char* kDdp = "kineto/ddp_2rank_a100.json.gz";
constexpr const char* kSingle = "kineto/single_rank_ns_resolution.json.gz";

RowAnalysis only_row(const TraceAnalysis& a) {
  EXPECT_EQ(a.rows.size(), 1u);
  return a.rows.at(0);
}

TEST(GoldenDdp2Rank, UnionsAndPartition) {
  const TraceAnalysis a = analyze({data(kDdp)});
  EXPECT_EQ(a.outcome, TraceOutcome::kClean);
  EXPECT_EQ(a.files[0].facts.events, 40573u);
  const RowAnalysis r = only_row(a);
  const RunningTimes& t = r.partition.whole.running;
  EXPECT_EQ(t.length(kRunsModel), 115'655'847);
  EXPECT_EQ(t.length(kRunsCommunication), 46'876'493);
  EXPECT_EQ(t.length(kRunsMemcpy | kRunsMemset), 2'653'498);
  EXPECT_EQ(t.both(kRunsModel, kRunsCommunication), 7'317'025);
  EXPECT_EQ(r.partition.whole.partition.end - r.partition.whole.partition.begin, 660'551'005);
  EXPECT_NEAR(*r.overlap_pct, 15.6092, 5e-5);
  EXPECT_EQ(r.partition.counts.kernels, 2700);
  EXPECT_EQ(r.partition.counts.memcpys, 960);
  EXPECT_EQ(r.partition.counts.memsets, 114);
  EXPECT_EQ(r.partition.counts.communication, 21);
  EXPECT_EQ(r.partition.counts.optimizer, 27);
  EXPECT_EQ(
      classes(r.total.partition.classes),
      "compute 106260544, overlapped 7317025, exposed_other 39559468, copy 2284699, host 501050857, optimizer 2078278, "
      "idle 2000134");
  EXPECT_EQ(r.total.host_not_issued, 471'913'020);
  EXPECT_EQ(r.total.host_launch, 29'137'837);
  EXPECT_EQ(r.total.idle_unknown, 0);
  EXPECT_EQ(t.length(kRunsModel, kRunsCommunication), 108'338'822);
  EXPECT_EQ(t.by_set[kRunsCommunication], 39'190'669);
  EXPECT_EQ(t.length(kRunsMemcpy | kRunsMemset, kRunsModel | kRunsCommunication), 2'284'699);
}

TEST(GoldenDdp2Rank, StepsTileTheSpan) {
  const RowAnalysis r = only_row(analyze({data(kDdp)}));
  ASSERT_EQ(r.partition.steps.size(), 3u);
  const fsdp::Nanos lengths[] = {222'054'811, 219'732'155, 218'764'039};
  const char* expected[] = {
      "compute 35988002, overlapped 1825259, exposed_other 10163762, copy 768753, host 171936389, optimizer 693145, "
      "idle 679501",
      "compute 35977013, overlapped 1760420, exposed_other 10539609, copy 759895, host 169324578, optimizer 691989, "
      "idle 678651",
      "compute 34295529, overlapped 3731346, exposed_other 18856097, copy 756051, host 159789890, optimizer 693144, "
      "idle 641982"};
  const fsdp::Nanos launch[] = {9'864'993, 9'759'971, 9'512'873};
  for (int i = 0; i < 3; ++i) {
    const ForeignStep& s = r.partition.steps[static_cast<std::size_t>(i)];
    EXPECT_EQ(s.label, "ProfilerStep#" + std::to_string(4 + i));
    EXPECT_EQ(s.partition.end - s.partition.begin, lengths[i]);
    EXPECT_EQ(classes(s.partition.classes), expected[i]);
    EXPECT_EQ(s.host_launch, launch[i]);
    EXPECT_EQ(s.operations, 1258);
  }
}

TEST(GoldenDdp2Rank, TraceLensAndNsys) {
  const RowAnalysis r = only_row(analyze({data(kDdp)}, Convention::kTraceLens));
  const TraceLensTimes t = tracelens_times(r.partition);
  EXPECT_EQ(t.compute, 116'046'564);
  EXPECT_EQ(t.exposed_communication, 39'529'327);
  EXPECT_EQ(t.exposed_memcpy, 1'924'123);
  EXPECT_EQ(t.idle, 503'050'991);
  EXPECT_EQ(t.hidden_communication, 7'347'166);
  const NsysTimes n = nsys_times(r.partition);
  EXPECT_EQ(n.compute_only, 108'338'822);
  EXPECT_EQ(n.communication_only, 39'559'468);
  EXPECT_EQ(n.overlap, 7'317'025);
  EXPECT_EQ(n.idle, 505'335'690);
  EXPECT_EQ(n.span, 660'551'005);
}

HtaResult hta(const std::string& path, bool last, bool round = true) {
  AnalyzeOptions o;
  o.paths = {path};
  o.convention = Convention::kHta;
  o.hta_include_last_step = last;
  o.hta_round = round;
  return *analyze_traces(o).rows.at(0).hta;
}

TEST(GoldenDdp2Rank, QuadrantsOfTheNsysRecipe) {
  const nlohmann::json j = analyze_json({data(kDdp)}, Convention::kNsys)["rows"][0]["convention"]["recipe"];
  EXPECT_EQ(j["communication_compute_pct"], 15.6092);
  EXPECT_EQ(j["compute_communication_pct"], 6.3266);
  EXPECT_EQ(j["communication_communication_pct"], 0);
  EXPECT_EQ(j["compute_compute_pct"], 0);
}

TEST(GoldenDdp2Rank, HtaWithItsRounding) {
  const HtaResult all = hta(data(kDdp), true);
  EXPECT_NEAR(*all.overlap_pct, 15.14, 0.005);
  EXPECT_EQ(all.idle, 506'512);
  EXPECT_EQ(all.compute, 113'012);
  EXPECT_EQ(all.non_compute, 41'026);
  EXPECT_EQ(all.kernel_time, 660'550);
  EXPECT_EQ(all.by_type, (std::array<fsdp::Nanos, 8>{0, 105'920, 39'461, 7'092, 1'260, 0, 305, 0}));
  ASSERT_EQ(all.streams.size(), 2u);
  EXPECT_EQ(all.streams[0].host_wait, 542'749);
  EXPECT_EQ(all.streams[0].kernel_wait, 3'224);
  EXPECT_EQ(all.streams[0].other, 0);
  EXPECT_EQ(all.streams[1].stream, 40);
  EXPECT_EQ(all.streams[1].host_wait, 583'942);
  EXPECT_EQ(all.streams[1].other, 0);

  const HtaResult dropped = hta(data(kDdp), false);
  EXPECT_TRUE(dropped.last_step_dropped);
  EXPECT_NEAR(*dropped.overlap_pct, 14.31, 0.005);
  EXPECT_EQ(dropped.idle, 338'781);
  EXPECT_EQ(dropped.compute, 75'169);
  EXPECT_EQ(dropped.non_compute, 21'636);
  EXPECT_EQ(dropped.kernel_time, 435'586);
  EXPECT_EQ(dropped.operations, 2516);
}

TEST(GoldenDdp2Rank, HtaInExactNanoseconds) {
  const HtaResult dropped = hta(data(kDdp), false, false);
  EXPECT_EQ(dropped.compute, 76'935'828);
  EXPECT_EQ(dropped.communication, 24'289'050);
  EXPECT_EQ(dropped.overlap, 3'585'679);
  EXPECT_EQ(dropped.kernel_time, 435'587'561);
  EXPECT_NEAR(*dropped.overlap_pct, 14.7625, 5e-5);
  const HtaResult all = hta(data(kDdp), true, false);
  EXPECT_EQ(all.idle, 503'050'991);
  EXPECT_EQ(all.compute, 115'655'847);
  EXPECT_EQ(all.non_compute, 41'844'167);
}

TEST(GoldenDdpRank3Of8, TotalsAndHta) {
  const std::string path = data("kineto/ddp_rank3of8_a100.json.gz");
  const TraceAnalysis a = analyze({path});
  EXPECT_EQ(a.outcome, TraceOutcome::kClean);
  EXPECT_EQ(a.files[0].rank, 3);
  const RowAnalysis r = only_row(a);
  const RunningTimes& t = r.partition.whole.running;
  EXPECT_EQ(t.length(kRunsCommunication), 163'535'000);
  EXPECT_EQ(t.length(kRunsModel), 281'336'000);
  EXPECT_EQ(t.both(kRunsModel, kRunsCommunication), 75'614'000);
  EXPECT_EQ(column(r.total, PartitionClass::kExposedOther), 87'921'000);
  EXPECT_EQ(column(r.total, PartitionClass::kCopy), 19'330'000);
  EXPECT_EQ(sum(r.total.partition.classes), 464'594'000);
  EXPECT_NEAR(*r.overlap_pct, 46.24, 0.005);
  const HtaResult all = hta(path, true);
  EXPECT_NEAR(*all.overlap_pct, 46.24, 0.005);
  EXPECT_EQ(all.kernel_time, 464'594);
  EXPECT_EQ(all.compute, 281'336);
  EXPECT_NEAR(100.0 * static_cast<double>(all.idle) / static_cast<double>(all.kernel_time), 16.36, 0.005);
}

TEST(GoldenSingleRank, NanosecondStampsKeepTheirNanosecondsAndNoneIsNone) {
  const TraceAnalysis a = analyze({data(kSingle)});
  EXPECT_EQ(a.outcome, TraceOutcome::kClean);
  EXPECT_EQ(a.files[0].facts.events, 68692u);
  const RowAnalysis r = only_row(a);
  EXPECT_EQ(r.partition.counts.kernels, 4350);
  EXPECT_EQ(r.partition.counts.memcpys, 1600);
  EXPECT_EQ(r.partition.counts.memsets, 145);
  EXPECT_EQ(r.partition.counts.optimizer, 45);
  EXPECT_FALSE(r.overlap_pct.has_value());
  EXPECT_EQ(classes(r.total.partition.classes),
            "compute 462620800, copy 4300839, host 1347125, optimizer 5532802, idle 6227613");
  EXPECT_EQ(r.total.host_not_issued, 963'007);
  EXPECT_EQ(r.total.host_launch, 384'118);
  EXPECT_EQ(r.partition.whole.partition.end - r.partition.whole.partition.begin, 480'029'179);
  const fsdp::Nanos lengths[] = {97'663'727, 95'736'858, 95'570'555, 95'664'027, 95'394'012};
  ASSERT_EQ(r.partition.steps.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(r.partition.steps[i].partition.end - r.partition.steps[i].partition.begin, lengths[i]);
    EXPECT_EQ(r.partition.steps[i].operations, 1219);
  }
  const TraceLensTimes t = tracelens_times(r.partition);
  EXPECT_EQ(t.compute, 468'739'037);
  EXPECT_EQ(t.exposed_memcpy, 3'715'404);
  EXPECT_EQ(t.idle, 7'574'738);
  EXPECT_EQ(nsys_times(r.partition).idle, 11'875'577);
  EXPECT_FALSE(nsys_times(r.partition).overlap_pct.has_value());
}

TEST(GoldenSingleRank, HtaLosesWhatItRounds) {
  const HtaResult all = hta(data(kSingle), true), dropped = hta(data(kSingle), false);
  EXPECT_EQ(all.operations, 6095);
  EXPECT_EQ(all.idle, 12'143);
  EXPECT_EQ(all.compute, 464'915);
  EXPECT_EQ(all.non_compute, 2'971);
  EXPECT_EQ(all.kernel_time, 480'029);
  EXPECT_FALSE(all.overlap_pct.has_value());
  EXPECT_EQ(dropped.operations, 4876);
  EXPECT_EQ(dropped.idle, 10'113);
  EXPECT_EQ(dropped.compute, 372'150);
  EXPECT_EQ(dropped.non_compute, 2'371);
  EXPECT_EQ(dropped.kernel_time, 384'634);
}

TEST(GoldenSingleRank, NoneIsNullInJsonAndNeverNan) {
  for (Convention c : {Convention::kExclusive, Convention::kHta, Convention::kTraceLens, Convention::kNsys}) {
    const nlohmann::json j = analyze_json({data(kSingle)}, c);
    EXPECT_TRUE(j["rows"][0]["overlap_pct"].is_null());
    const std::string text = to_text(analyze({data(kSingle)}, c));
    EXPECT_EQ(text.find("nan"), std::string::npos);
    EXPECT_NE(text.find("overlap: none"), std::string::npos);
  }
}

TEST(GoldenEventSync, WaitsForAllocationsAreMemoryWaitAndSyncRowsAreNoWork) {
  const TraceAnalysis a = analyze({data("kineto/event_sync_multi_stream.json.gz")});
  const RowAnalysis r = only_row(a);
  EXPECT_EQ(r.partition.whole.operations, 6);
  EXPECT_EQ(classes(r.total.partition.classes),
            "compute 369000, copy 3000, host 18696000, memory_wait 408000, idle 30000");
  EXPECT_EQ(r.total.host_not_issued, 18'637'000);
  EXPECT_EQ(r.total.host_launch, 59'000);
  EXPECT_EQ(a.files[0].facts.sync_rows, 5);
}

TEST(GoldenHostOnly, NoDeviceActivityIsSaidAndIsNoSuccess) {
  for (const char* name : {"kineto/cpu_only.json.gz", "kineto/no_distributed_info.json.gz"}) {
    const TraceAnalysis a = analyze({data(name)});
    EXPECT_EQ(a.outcome, TraceOutcome::kNoDeviceActivity);
    EXPECT_EQ(exit_code_of(a.outcome), 1);
    EXPECT_NE(to_text(a).find("no device activity"), std::string::npos);
    EXPECT_TRUE(a.rows.empty());
  }
  EXPECT_EQ(analyze({data("kineto/cpu_only.json.gz")}).files[0].rank, 34);
  const TraceAnalysis unknown = analyze({data("kineto/no_distributed_info.json.gz")});
  EXPECT_FALSE(unknown.files[0].rank.has_value());
  EXPECT_NE(to_text(unknown).find("rank is unknown"), std::string::npos);
}

struct NsysRow {
  const char* partition;
  fsdp::Nanos not_issued, launch, dependency, unknown, span;
  fsdp::Nanos nsys_idle, nsys_span, lens_compute, lens_exposed_communication, lens_exposed_memcpy, lens_idle;
};

void expect_row(const RowAnalysis& r, const NsysRow& e) {
  EXPECT_EQ(classes(r.total.partition.classes), e.partition);
  EXPECT_EQ(r.total.host_not_issued, e.not_issued);
  EXPECT_EQ(r.total.host_launch, e.launch);
  EXPECT_EQ(r.total.idle_dependency, e.dependency);
  EXPECT_EQ(r.total.idle_unknown, e.unknown);
  EXPECT_EQ(r.partition.whole.partition.end - r.partition.whole.partition.begin, e.span);
  const NsysTimes n = nsys_times(r.partition);
  EXPECT_EQ(n.idle, e.nsys_idle);
  EXPECT_EQ(n.span, e.nsys_span);
  const TraceLensTimes t = tracelens_times(r.partition);
  EXPECT_EQ(t.compute, e.lens_compute);
  EXPECT_EQ(t.exposed_communication, e.lens_exposed_communication);
  EXPECT_EQ(t.exposed_memcpy, e.lens_exposed_memcpy);
  EXPECT_EQ(t.idle, e.lens_idle);
}

TEST(GoldenNsys, NoNccl) {
  const TraceAnalysis a = analyze({data("nsys/h100_2gpu_no_nccl.sqlite")});
  EXPECT_EQ(a.outcome, TraceOutcome::kPartial) << "the head is cut off: 1,138 operations a device have no launch";
  ASSERT_EQ(a.rows.size(), 2u);
  EXPECT_EQ(a.rows[0].partition.counts.without_launch, 1138);
  EXPECT_EQ(a.rows[1].partition.counts.without_launch, 1138);
  EXPECT_EQ(a.rows[0].partition.counts.kernels, 1721);
  EXPECT_FALSE(a.rows[0].overlap_pct.has_value());
  expect_row(a.rows[0], {"compute 22385163, copy 940505084, host 1781805, idle 4775553", 1'673'594, 108'211, 2'278'862,
                         2'496'691, 969'447'605, 938'099'846, 960'485'009, 22'399'947, 0, 940'490'300, 6'557'358});
  expect_row(a.rows[1], {"compute 22444359, copy 940366346, host 1568864, idle 4879009", 1'483'437, 85'427, 2'327'233,
                         2'551'776, 969'258'578, 937'863'304, 960'307'663, 22'458'791, 0, 940'351'914, 6'447'873});
}

TEST(GoldenNsys, SendReceive) {
  const TraceAnalysis a = analyze({data("nsys/h100_2gpu_sendrecv.sqlite")});
  ASSERT_EQ(a.rows.size(), 2u);
  EXPECT_EQ(*a.rows[0].overlap_pct, 0) << "zero, not none: there is communication";
  EXPECT_EQ(a.rows[0].partition.counts.communication, 33);
  expect_row(a.rows[0], {"compute 253690832, exposed_other 17172652, copy 2954303, host 21464402, idle 4566623",
                         16'878'392, 4'586'010, 4'538'367, 28'256, 299'848'812, 28'985'328, 299'848'812, 253'800'656,
                         17'172'652, 2'844'479, 26'031'025});
  expect_row(a.rows[1], {"compute 256095624, exposed_other 8229100, copy 2951192, host 27533909, idle 3851726",
                         24'304'272, 3'229'637, 3'824'686, 27'040, 298'661'551, 34'336'827, 298'661'551, 256'199'208,
                         8'229'100, 2'847'608, 31'385'635});
  const double hta_percent[2][3] = {{8.6814, 84.6062, 6.7124}, {10.5088, 85.7478, 3.7435}};
  const TraceAnalysis h = analyze({data("nsys/h100_2gpu_sendrecv.sqlite")}, Convention::kHta);
  for (std::size_t i = 0; i < 2; ++i) {
    const RunningTimes& t = h.rows[i].partition.whole.running;
    const auto span =
        static_cast<double>(h.rows[i].partition.whole.partition.end - h.rows[i].partition.whole.partition.begin);
    const auto compute = static_cast<double>(t.length(kRunsModel)), busy = static_cast<double>(t.length(~0u));
    EXPECT_NEAR(100 * (span - busy) / span, hta_percent[i][0], 5e-5);
    EXPECT_NEAR(100 * compute / span, hta_percent[i][1], 5e-5);
    EXPECT_NEAR(100 * (busy - compute) / span, hta_percent[i][2], 5e-5);
  }
}

TEST(GoldenNsys, SyntheticWithFewTablesAndColumns) {
  const TraceAnalysis a = analyze({data("nsys/synthetic_healthy.sqlite")});
  EXPECT_EQ(a.outcome, TraceOutcome::kClean);
  expect_row(only_row(a), {"compute 400000000, host 3990000", 2'793'000, 1'197'000, 0, 0, 403'990'000, 3'990'000,
                           403'990'000, 400'000'000, 0, 0, 3'990'000});
  EXPECT_FALSE(a.rows[0].overlap_pct.has_value());
}

TEST(GoldenInvariants, PartitionsSumAndFindingsNeverClaimMoreThanIsExposed) {
  for (const char* name :
       {kDdp, kSingle, "kineto/ddp_rank3of8_a100.json.gz", "kineto/event_sync_multi_stream.json.gz",
        "nsys/h100_2gpu_no_nccl.sqlite", "nsys/h100_2gpu_sendrecv.sqlite", "nsys/synthetic_healthy.sqlite"}) {
    for (const RowAnalysis& r : analyze({data(name)}).rows) {
      Partition of_steps{};
      fsdp::Nanos at = r.partition.steps.front().partition.begin;
      for (const ForeignStep& s : r.partition.steps) {
        EXPECT_EQ(s.partition.begin, at) << "windows tile";
        at = s.partition.end;
        EXPECT_EQ(sum(s.partition.classes), s.partition.end - s.partition.begin);
        Partition details{};
        for (const PartitionDetail& d : s.partition.details) details[static_cast<std::size_t>(d.cls)] += d.ns;
        EXPECT_EQ(details, s.partition.classes);
        EXPECT_EQ(s.host_not_issued + s.host_launch, column(s, PartitionClass::kHost));
        EXPECT_EQ(s.idle_dependency + s.idle_unknown, column(s, PartitionClass::kIdle));
        for (std::size_t i = 0; i < of_steps.size(); ++i) of_steps[i] += s.partition.classes[i];
      }
      EXPECT_EQ(of_steps, r.partition.whole.partition.classes);
      const RunningTimes& t = r.partition.whole.running;
      EXPECT_EQ(column(r.partition.whole, PartitionClass::kOverlapped) + exposed(r.partition.whole.partition.classes),
                t.length(kRunsCommunication, kRunsOptimizer));
      fsdp::Nanos claimed = 0;
      for (const AnalysisFinding& f : r.findings) claimed += f.ns;
      EXPECT_LE(claimed, exposed(r.partition.whole.partition.classes));
    }
  }
}

}  // namespace
}  // namespace harness::testing
