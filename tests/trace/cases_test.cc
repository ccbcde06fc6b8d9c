// Cases that trace tools are known to get wrong, each with what is right.
#include <sqlite3.h>

#include "fsdp/core/errors.h"
#include "tests/trace/kineto_text.h"
#include "tests/trace/nsys_file.h"

namespace harness::testing {
namespace {

using Json = nlohmann::json;

bool says(const Json& j, const std::string& part) {
  for (const Json& m : j["messages"]) {
    if (m.get<std::string>().find(part) != std::string::npos) return true;
  }
  return false;
}

std::string refusal(const std::vector<std::string>& paths) {
  try {
    analyze(paths);
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

// --- C07: one hardware queue ---

// Compute on stream 7 but for ten gaps of 1 ms; gathers on 20 under compute, reduces on 24 exactly in the gaps.
TEST(C07, ReducesThatRunOnlyInTheGapsPointToTheHardwareQueues) {
  KinetoText t;
  for (int i = 0; i < 10; ++i) {
    const int z = 5000 * i;
    t.kernel("gemm", 7, std::to_string(z), "4000")
        .kernel("ncclDevKernel_AllGather", 20, std::to_string(z + 100), "900");
    t.kernel("ncclDevKernel_ReduceScatter_Sum", 24, std::to_string(z + 4000), "1000");
  }
  t.kernel("gemm", 7, "50000", "100");
  const Json r = analyze_json({t.write("c07.json")})["rows"][0];
  EXPECT_EQ(r["partition"]["exposed_reduce_scatter_ns"], 10'000'000);
  EXPECT_EQ(r["partition"]["exposed_other_ns"], 0);
  EXPECT_EQ(r["findings"][0]["kind"], "hardware_queues");
  EXPECT_NE(r["findings"][0]["text"].get<std::string>().find("check the number of hardware queues"), std::string::npos);
}

// --- C08: two streams, one communicator ---

KinetoText gathers_and_reduces(int reduce_begin) {
  KinetoText t;
  for (int i = 0; i < 4; ++i) {
    const int z = 1000 * i;
    t.kernel("gemm", 7, std::to_string(z), "800").kernel("ncclDevKernel_AllGather", 20, std::to_string(z + 100), "200");
    t.kernel("ncclDevKernel_ReduceScatter_Sum", 24, std::to_string(z + reduce_begin), "200");
  }
  return t;
}

TEST(C08, CollectivesOfTwoStreamsThatNeverMeetAreSaidToBeOrdered) {
  const Json apart = analyze_json({gathers_and_reduces(300).write("c08a.json")})["rows"][0]["findings"];
  ASSERT_EQ(apart.size(), 1u);
  EXPECT_EQ(apart[0]["kind"], "never_concurrent");
  EXPECT_NE(apart[0]["text"].get<std::string>().find("never concurrent although on different streams"),
            std::string::npos);
  EXPECT_TRUE(analyze_json({gathers_and_reduces(299).write("c08b.json")})["rows"][0]["findings"].empty());
}

// --- C22: durations that cannot be true ---

TEST(C22, ImpossibleRecordsAreSetAsideByReasonAndChangeNoTotal) {
  KinetoText good;
  good.kernel("k", 7, "100.7", "0.2", 1).launch("90", "2", 1);
  for (int i = 0; i < 500; ++i) {
    good.kernel("k", 7, std::to_string(200 + 20 * i) + ".000", "10.000", 10 + i)
        .launch(std::to_string(190 + 20 * i), "2", 10 + i);
  }
  KinetoText bad = good;
  bad.kernel("k", 7, "0", "0", 2).kernel("k", 7, "205", "", 3).kernel("k", 7, "206", "-1", 4);
  bad.kernel("spin", 9, "300", "3400000", 5).kernel("k", 9, "305", "1", 6).launch("290", "2", 6);
  good.kernel("k", 9, "305", "1", 6).launch("290", "2", 6);
  const Json a = analyze_json({good.write("c22a.json")}), b = analyze_json({bad.write("c22b.json")});
  EXPECT_EQ(a["rows"][0]["span_ns"], b["rows"][0]["span_ns"]);
  EXPECT_EQ(a["rows"][0]["partition"]["compute_ns"], b["rows"][0]["partition"]["compute_ns"]);
  EXPECT_EQ(a["rows"][0]["operations"], b["rows"][0]["operations"]);
  const Json& counts = b["files"][0]["bad_records"];
  EXPECT_EQ(counts["zero_times"], 1);
  EXPECT_EQ(counts["no_duration"], 1);
  EXPECT_EQ(counts["negative_duration"], 1);
  EXPECT_EQ(counts["impossible_duration"], 1);
  EXPECT_EQ(counts["total"], 4);
  EXPECT_EQ(b["files"][0]["suspect"], false);
  EXPECT_EQ(a["rows"][0]["partition"]["begin_ns"], 0);
}

TEST(C22, NanosecondsOfTheTextAreKept) {
  const Json j = analyze_json({KinetoText().kernel("k", 7, "100.7", "0.2").write("c22c.json")});
  EXPECT_EQ(j["rows"][0]["compute_union_ns"], 200);
  EXPECT_EQ(j["rows"][0]["span_ns"], 200);
}

TEST(C22, MoreThanOnePercentBadIsSuspect) {
  KinetoText t;
  for (int i = 0; i < 50; ++i) t.kernel("k", 7, std::to_string(10 * i), "5");
  t.kernel("k", 7, "3", "NaN");
  const Json j = analyze_json({t.write("c22d.json")});
  EXPECT_EQ(j["files"][0]["suspect"], true);
  EXPECT_EQ(j["files"][0]["bad_records"]["not_a_number"], 1);
  EXPECT_EQ(j["outcome"], "partial");
}

// --- C23: what counts as communication ---

TEST(C23, EverySpellingIsCommunicationAndSyncRowsAndAnnotationsAreNot) {
  for (const char* name :
       {"ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)",
        "nccldevkernel_allgather_ring_ll", "rcclGenericKernel<1, false>(ncclDevComm*)"}) {
    KinetoText t;
    t.kernel("gemm", 7, "0", "100", 1).launch("-10", "1", 1);
    t.kernel(name, 20, "80", "100", 2).launch("70", "1", 2);
    t.kernel("Event Sync", -1, "80", "100", 3, "cuda_sync");
    t.annotation("nccl:all_gather", "80", "100");
    const TraceAnalysis a = analyze({t.write("c23.json")});
    EXPECT_EQ(a.outcome, TraceOutcome::kClean) << name;
    EXPECT_NEAR(*a.rows.at(0).overlap_pct, 20, 1e-9) << name;
    EXPECT_EQ(exposed(a.rows[0].total.partition.classes), 80'000) << name;
    EXPECT_EQ(a.rows[0].partition.whole.operations, 2);
  }
}

TEST(C23, AnnotationsWithoutCollectiveKernelsGiveNoNumberAndNoSuccess) {
  KinetoText t;
  t.kernel("gemm", 7, "0", "100", 1).launch("-10", "1", 1).annotation("nccl:all_gather", "80", "100");
  const TraceAnalysis a = analyze({t.write("c23b.json")});
  EXPECT_FALSE(a.rows.at(0).overlap_pct.has_value());
  EXPECT_NE(exit_code_of(a.outcome), 0);
  EXPECT_NE(to_text(a).find("no communication kernels found"), std::string::npos);
}

TEST(C23, EmulatedCollectivesAreCommunicationAndSaidToBeEmulated) {
  KinetoText t;
  t.kernel("emu_collective_all_gather", 20, "0", "100", 1).launch("-10", "1", 1);
  const Json j = analyze_json({t.write("c23c.json")});
  EXPECT_EQ(j["rows"][0]["emulated"], true);
  EXPECT_EQ(j["rows"][0]["collectives"], 1);
}

// Device work of PyTorch's FSDP2, by the ranges around the launch calls.
TEST(FsdpAnnotations, UnitPassAndCopiesOfDeviceWork) {
  KinetoText t;
  t.annotation("FSDP::pre_forward (layers.0)", "0", "50").annotation("FSDP::all_gather (layers.0)", "1", "20");
  t.annotation("FSDP::all_gather_copy_out (layers.0)", "30", "10");
  t.annotation("FSDP::pre_backward (layers.1)", "200", "50", 8)
      .annotation("FSDP::backward_prefetch for layers.0", "210", "30", 8);
  t.annotation("FSDP::all_gather (layers.0)", "215", "20", 8)
      .annotation("FSDP::post_backward_reduce (layers.1)", "300", "50", 8);
  t.kernel("ncclDevKernel_Generic", 20, "100", "50", 1).launch("5", "1", 1);
  t.kernel("split_with_sizes_copy_out", 7, "150", "10", 2).launch("35", "1", 2);
  t.kernel("gemm", 7, "160", "40", 3).launch("60", "1", 3);
  t.kernel("ncclDevKernel_AllGather_RING_LL", 20, "400", "30", 4).launch("220", "1", 4, "cudaLaunchKernelExC", 8);
  t.kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", 20, "500", "20", 5)
      .launch("310", "1", 5, "cudaLaunchKernelExC", 8);
  const Json j = analyze_json({t.write("fsdp2.json")});
  const Json& p = j["rows"][0]["partition"];
  EXPECT_EQ(p["exposed_all_gather_forward_ns"], 50'000);
  EXPECT_EQ(p["exposed_all_gather_backward_ns"], 30'000);
  EXPECT_EQ(p["exposed_reduce_scatter_ns"], 20'000);
  EXPECT_EQ(p["copy_ns"], 10'000);
  EXPECT_EQ(p["compute_ns"], 40'000);
  std::map<std::string, std::string> units;
  for (const Json& u : j["rows"][0]["units"]) {
    units[u["unit"].get<std::string>() + " " + u["pass"].get<std::string>()] =
        std::to_string(u["all_gathers"].get<int>()) + " " + std::to_string(u["reduce_scatters"].get<int>());
  }
  EXPECT_EQ(units, (std::map<std::string, std::string>{
                       {"layers.0 forward", "1 0"}, {"layers.0 backward", "1 0"}, {"layers.1 backward", "0 1"}}));
  EXPECT_EQ(j["rows"][0]["units"][0]["compute_ns"], 40'000) << "launched after layers.0's pre-forward";
  EXPECT_TRUE(says(j, "FSDP copies recognised by annotation: 1"));
}

// --- C24: files without rank, without steps ---

KinetoText two_steps() {
  KinetoText t;
  t.annotation("ProfilerStep#1", "0", "100").annotation("ProfilerStep#2", "100", "100");
  for (int i = 0; i < 4; ++i) {
    t.kernel("k", 7, std::to_string(50 * i + 10), "20", i + 1).launch(std::to_string(50 * i + 5), "1", i + 1);
  }
  return t;
}

TEST(C24, AnUnknownRankIsSaidAndFlagAndNameAreTaken) {
  KinetoText t = two_steps();
  t.members = "\"schemaVersion\": 1";
  const Json unknown = analyze_json({t.write("c24.json")});
  EXPECT_TRUE(unknown["files"][0]["rank"].is_null());
  EXPECT_EQ(unknown["files"][0]["rank_from"], "unknown");
  EXPECT_TRUE(says(unknown, "rank is unknown"));
  const Json named = analyze_json({t.write("trace_rank_12.json")});
  EXPECT_EQ(named["files"][0]["rank"], 12);
  EXPECT_EQ(named["files"][0]["rank_from"], "name");
  AnalyzeOptions o;
  o.paths = {t.write("c24.json")};
  o.ranks = {5};
  EXPECT_EQ(analyze_traces(o).files[0].rank, 5);
}

TEST(C24, TwoFilesOfOneRankAreRefusedByName) {
  KinetoText t = two_steps();
  t.members = "\"distributedInfo\": {\"rank\": 1, \"world_size\": 2}";
  const std::string a = t.write("c24a.json"), b = t.write("c24b.json"), why = refusal({a, b});
  EXPECT_NE(why.find(a), std::string::npos);
  EXPECT_NE(why.find(b), std::string::npos);
  EXPECT_NE(why.find("both rank 1"), std::string::npos);
}

TEST(C24, ACutStepIsLeftOutSaidAndCanBeCounted) {
  KinetoText t = two_steps();
  t.annotation("ProfilerStep#3", "200", "").kernel("k", 7, "210", "20", 9).launch("205", "1", 9);
  AnalyzeOptions o;
  o.paths = {t.write("c24c.json")};
  const TraceAnalysis without = analyze_traces(o);
  o.include_cut_step = true;
  const TraceAnalysis with = analyze_traces(o);
  ASSERT_EQ(without.rows.at(0).partition.steps.size(), 3u);
  EXPECT_TRUE(without.rows[0].partition.steps[2].cut);
  EXPECT_EQ(column(without.rows[0].total, PartitionClass::kCompute), 80'000);
  EXPECT_EQ(column(with.rows[0].total, PartitionClass::kCompute), 100'000);
  EXPECT_NE(to_text(without).find("was cut"), std::string::npos);
}

TEST(C24, WithoutMarkersTheWholeWindowIsAnalysed) {
  KinetoText t;
  t.kernel("k", 7, "10", "20", 1).launch("5", "1", 1).kernel("k", 7, "40", "20", 2).launch("6", "1", 2);
  const TraceAnalysis a = analyze({t.write("c24d.json")});
  EXPECT_FALSE(a.rows.at(0).partition.has_steps);
  EXPECT_EQ(sum(a.rows[0].total.partition.classes), 50'000);
  EXPECT_NE(to_text(a).find("no step boundaries"), std::string::npos);
}

TEST(C24, WorkBeforeTheFirstStepIsReportedApart) {
  KinetoText t = two_steps();
  t.kernel("warmup", 7, "-500", "100", 20).launch("-510", "1", 20);
  const Json j = analyze_json({t.write("c24e.json")});
  EXPECT_EQ(j["rows"][0]["before_first_step"]["operations"], 1);
  EXPECT_EQ(j["rows"][0]["before_first_step"]["busy_ns"], 100'000);
  EXPECT_EQ(j["rows"][0]["partition"]["compute_ns"], 80'000);
}

// --- C25: JSON that is not JSON ---

TEST(C25, OddNamesLoseNothing) {
  for (const std::string& name :
       {std::string("line\nbreak"), std::string("C:\\x\\u"), std::string("\xff\xfe kernel")}) {
    KinetoText t;
    t.kernel("a", 7, "0", "10").kernel(name, 7, "20", "10").kernel("c", 7, "40", "10");
    const TraceAnalysis a = analyze({t.write("c25.json")});
    EXPECT_EQ(a.rows.at(0).partition.whole.operations, 3);
    EXPECT_EQ(a.files[0].facts.defects.lost_events, 0u);
    EXPECT_NO_THROW(Json::parse(to_json(a)));
  }
}

TEST(C25, CutTextIsPartialWithTheByteAndTheLoss) {
  const std::string text = KinetoText().kernel("a", 7, "0", "10").kernel("b", 7, "20", "10").text();
  const Json inside = analyze_json({write_file("c25a.json", text.substr(0, text.find("\"b\"") + 5))});
  EXPECT_EQ(inside["outcome"], "partial");
  EXPECT_EQ(inside["files"][0]["lost_events"], 1);
  EXPECT_EQ(inside["files"][0]["truncated"], true);
  EXPECT_EQ(inside["files"][0]["first_defect"].get<std::string>().substr(0, 5), "byte ");
  EXPECT_EQ(inside["rows"][0]["operations"], 1);
  const Json comma = analyze_json({write_file("c25b.json", text.substr(0, text.find(",\n{") + 1))});
  EXPECT_EQ(comma["outcome"], "partial");
  EXPECT_EQ(comma["files"][0]["lost_events"], 0);
}

TEST(C25, GzipCutAtSeventyPercentIsPartial) {
  const std::string bytes = read_file(data("kineto/ddp_2rank_a100.json.gz"));
  const Json j = analyze_json({write_file("c25.json.gz", bytes.substr(0, bytes.size() * 7 / 10))});
  EXPECT_EQ(j["outcome"], "partial");
  EXPECT_NE(j["files"][0]["first_defect"].get<std::string>().find("gzip stream ends early"), std::string::npos);
  EXPECT_GT(j["files"][0]["events"], 20000);
}

TEST(C25, CrossingRangesAreTaken) {
  KinetoText t;
  t.annotation("Optimizer.step#A", "0", "100").annotation("FSDP::pre_forward (x)", "50", "100");
  t.kernel("k", 7, "120", "10", 1).launch("60", "1", 1).kernel("k", 7, "140", "10", 2).launch("110", "1", 2);
  const TraceAnalysis a = analyze({t.write("c25c.json")});
  EXPECT_EQ(a.rows.at(0).partition.counts.optimizer, 1);
}

// --- C26: clocks ---

KinetoText rank_trace(int rank, const std::vector<std::pair<std::string, std::string>>& collectives,
                      const std::string& more = "") {
  KinetoText t;
  t.members = "\"distributedInfo\": {\"rank\": " + std::to_string(rank) + ", \"world_size\": 2}" + more;
  int c = 1;
  for (const auto& [ts, dur] : collectives) {
    t.kernel("ncclDevKernel_AllGather_RING_LL", 20, ts, dur, c).launch("1", "1", c);
    ++c;
  }
  return t;
}

TEST(C26, OffsetArrivalWaitAndTransfer) {
  const std::string a =
      rank_trace(0, {{"500.000", "500.000"}, {"1990.000", "10.000"}, {"2990.000", "10.000"}}).write("c26a.json");
  const std::string b =
      rank_trace(1, {{"1270.000", "30.000"}, {"2290.000", "10.000"}, {"3290.000", "10.000"}}).write("c26b.json");
  const Json j = analyze_json({a, b});
  EXPECT_EQ(j["alignment"]["aligned"], true);
  EXPECT_EQ(j["alignment"]["clocks"][1]["offset_ns"], 300'000);
  const Json& first = j["alignment"]["collectives"][0];
  EXPECT_EQ(first["arrivals_ns"][1], 970'000);
  EXPECT_EQ(first["waits_ns"][0], 470'000);
  EXPECT_EQ(first["transfer_ns"], 30'000);
  EXPECT_EQ(first["last_rank"], 1);
  EXPECT_EQ(j["alignment"]["straggler"], 1);
  // Rank 0 waits 470 in the first and nothing known in the others; 30 + 10 + 10 of transfer.
  EXPECT_NE(to_text(analyze({a, b}))
                .find("transfer (the shortest over ranks) 50.000 us in all; waited for the last to "
                      "come: rank 0 470.000 us, rank 1 0.000 us"),
            std::string::npos)
      << to_text(analyze({a, b}));
}

TEST(C26, DriftIsFitted) {
  std::vector<std::pair<std::string, std::string>> first, second;
  for (int i = 1; i <= 200; ++i) {  // every 10 ms; 50 ppm are 0.5 us each
    first.emplace_back(std::to_string(10'000 * i) + ".000", "30.000");
    const int ns = 300'000 + 500 * i;
    second.emplace_back(std::to_string(10'000 * i + ns / 1000) + "." + std::to_string(1000 + ns % 1000).substr(1),
                        "30.000");
  }
  const Json j = analyze_json({rank_trace(0, first).write("c26c.json"), rank_trace(1, second).write("c26d.json")});
  EXPECT_NEAR(j["alignment"]["clocks"][1]["drift_ppm"].get<double>(), 50, 0.2);
  EXPECT_LE(j["alignment"]["uncertainty_ns"].get<long>(), 20);
}

TEST(C26, StampsAbove53BitsKeepTheirNanosecond) {
  const std::string base = ", \"baseTimeNanoseconds\": 1719853884000000000";
  const std::string a =
      rank_trace(0, {{"5128557020893.234", "10.001"}, {"5128557021893.234", "10.000"}}, base).write("c26e.json");
  const std::string b =
      rank_trace(1, {{"5128557020893.235", "10.001"}, {"5128557021893.235", "10.000"}}, base).write("c26f.json");
  EXPECT_EQ(analyze_json({a, b})["alignment"]["clocks"][1]["offset_ns"], 1);
}

TEST(C26, WithoutACommonCollectiveThereIsNoGuess) {
  const std::string a = rank_trace(0, {{"500", "10"}}).write("c26g.json");
  KinetoText t;
  t.members = "\"distributedInfo\": {\"rank\": 1, \"world_size\": 2}";
  const Json j = analyze_json({a, t.kernel("gemm", 7, "5", "5").write("c26h.json")});
  EXPECT_EQ(j["alignment"]["aligned"], false);
  EXPECT_EQ(j["alignment"]["reason"].get<std::string>().substr(0, 12), "cannot align");
  EXPECT_NE(j["outcome"], "clean");
  EXPECT_FALSE(j["alignment"].contains("clocks"));
  // Counts that differ do not pair up.
  EXPECT_EQ(analyze_json({a, rank_trace(1, {{"1", "1"}, {"5", "1"}}).write("c26i.json")})["alignment"]["aligned"],
            false);
}

TEST(C26, SequenceNumbersPairWhatCountsCannot) {
  KinetoText a = rank_trace(0, {}), b = rank_trace(1, {});
  auto collective = [](const std::string& ts, int seq) {
    return "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce\",\"pid\":0,\"tid\":20,\"ts\":" + ts +
           ",\"dur\":10,\"args\":{\"Collective name\":\"allreduce\",\"Process Group Name\":\"0\",\"Seq\":" +
           std::to_string(seq) + "}}";
  };
  a.event(collective("100", 3)).event(collective("200", 4));
  b.event(collective("1200", 4));
  const Json j = analyze_json({a.write("c26j.json"), b.write("c26k.json")});
  EXPECT_EQ(j["alignment"]["clocks"][1]["offset_ns"], 1'000'000);
}

// --- C27: nsys files with several GPUs ---

TEST(C27, ARowForEachDeviceAndTheSharedStreamFirst) {
  NsysFile f("c27.sqlite");
  for (int device = 0; device < 4; ++device) {
    const std::int64_t pid = (device + 1LL) << 24;
    f.kernel(device, pid, 7, "gemm", -50'000, -10'000, 1).launch(pid, "cudaLaunchKernel", -60'000, -59'000, 1);
    for (int step = 0; step < 2; ++step) {
      const std::int64_t z = 100'000 * step;
      f.range(pid, "step", z, z + 100'000);
      for (int i = 0; i < 3; ++i) {
        const int c = 10 * step + 2 * i + 10;
        f.kernel(device, pid, 7, "gemm", z + 30'000 * i + 10'000, z + 30'000 * i + 20'000, c)
            .launch(pid, "cudaLaunchKernel", z + 1000, z + 1500, c);
        f.kernel(device, pid, device == 0 ? 7 : 17, "ncclDevKernel_AllGather", z + 30'000 * i + 20'000,
                 z + 30'000 * i + 35'000, c + 1)
            .launch(pid, "cudaLaunchKernel", z + 2000, z + 2500, c + 1);
      }
    }
  }
  const Json j = analyze_json({f.close()});
  ASSERT_EQ(j["rows"].size(), 4u);
  for (int device = 0; device < 4; ++device) {
    const Json& r = j["rows"][static_cast<std::size_t>(device)];
    EXPECT_EQ(r["device"], device);
    EXPECT_EQ(r["steps"].size(), 2u);
    EXPECT_EQ(r["before_first_step"]["busy_ns"], 40'000);
    EXPECT_EQ(r["partition"]["compute_ns"].get<long>() + r["partition"]["overlapped_ns"].get<long>(), 60'000)
        << "steps alone";
    EXPECT_EQ(r["findings"][0]["kind"], device == 0 ? "same_stream" : "exposed");
    long claimed = 0, exposed_ns = 0;
    for (const Json& x : r["findings"]) claimed += x["ns"].get<long>();
    for (const char* c : {"exposed_all_gather_forward_ns", "exposed_all_gather_backward_ns",
                          "exposed_reduce_scatter_ns", "exposed_other_ns"}) {
      exposed_ns += r["partition"][c].get<long>();
    }
    EXPECT_LE(claimed, exposed_ns);
  }
}

TEST(C27, AMissingTableOrColumnIsNamed) {
  NsysFile no_kernels("c27b.sqlite");
  no_kernels.sql("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL");
  EXPECT_NE(to_text(analyze({no_kernels.close()})).find("CUPTI_ACTIVITY_KIND_KERNEL is missing"), std::string::npos);
  NsysFile no_column("c27c.sqlite");
  no_column.sql("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN streamId TO other");
  EXPECT_NE(refusal({no_column.close()}).find("no column streamId"), std::string::npos);
}

}  // namespace
}  // namespace harness::testing
