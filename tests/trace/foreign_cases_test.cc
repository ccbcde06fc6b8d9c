// What is not recognised does not pass silently, and nothing is taken for another: situations from public reports.
#include "fsdp/core/errors.h"
#include "tests/trace/kineto_text.h"
#include "tests/trace/nsys_file.h"

namespace harness::testing {
namespace {

using Json = nlohmann::json;

std::string report(const std::string& name) { return data("reports/" + name); }

std::string refusal(const std::string& path) {
  try {
    analyze({path});
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// --- names ---

TEST(CommunicationName, KnowsTheLibrariesAndNotTheirNamesakes) {
  using N = CommunicationName;
  for (const char* name :
       {"multimem_all_reduce_kernel<c10::BFloat16, 16>", "two_shot_all_reduce_kernel_inplace<float>",
        "void vllm::cross_device_reduce_2stage<half, 8>(RankData*)", "deep_ep::intranode::dispatch<8, 768, 8192>",
        "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<2>",
        "nvshmemi_collective_kernel_reducescatter", "mscclpp::allreduce7",
        "tensorrt_llm::kernels::twoShotAllReduceKernel", "userbuffers_fp16_sum_inplace_gpu_rr", "rocshmem_put",
        "aiter::reduce_scatter_cross_device_store", "hcom_allReduce__1", "nvshmem_all_to_all_vdev"}) {
    EXPECT_EQ(communication_name(name), N::kOther) << name;
  }
  for (const char* name :
       {"ncclSymkDevKernel_AllGather_LL", "hcclKernel", "rcclGenericKernel", "mscclKernel_Sum_half"}) {
    EXPECT_EQ(communication_name(name), N::kNccl) << name;
  }
  for (const char* name :
       {"gemm_reduce_scatter_kernel", "flux::ag_gemm_all_gather", "put_signal_kernel", "p2p_write"}) {
    EXPECT_EQ(communication_name(name), N::kHint) << name;
  }
  for (const char* name : {"sm90_xmma_gemm_bf16", "triton_poi_fused_all_gather_into_tensor_wait_tensor_0",
                           "split_with_sizes_copy_out", "softmax<WarpAllReduce<4>>", "block_all_reduce_sum_f32",
                           "layernorm_kernel", "deep_ep::layout::get_dispatch_layout"}) {
    EXPECT_EQ(communication_name(name), N::kNo) << name;
  }
}

TEST(AllocationCalls, ExpandableSegmentsAndPoolsAreAllocation) {
  for (const char* name : {"cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemRelease",
                           "cuMemAddressReserve", "cudaMallocAsync_v11020", "cudaFreeAsync", "hipMalloc", "hipMemMap",
                           "cuMemAllocAsync", "cudaMemPoolTrimTo", "cuMemAlloc_v2"}) {
    EXPECT_TRUE(is_allocation_call(name)) << name;
  }
  for (const char* name : {"cuMemcpyHtoDAsync_v2", "cudaMemcpyAsync", "cuMemsetD8Async", "cuMemGetInfo_v2",
                           "cudaLaunchKernel", "cuMemPrefetchAsync", "cudaMemGetInfo"}) {
    EXPECT_FALSE(is_allocation_call(name)) << name;
  }
}

// --- the reports, each with its right value ---

TEST(N01, CollectivesOfOtherLibrariesAreCommunication) {
  const TraceAnalysis a = analyze({report("symm_mem_kernels.json")}, Convention::kTraceLens);
  const RowAnalysis& r = a.rows.at(0);
  EXPECT_EQ(exposed(r.total.partition.classes), 300'000);
  EXPECT_EQ(column(r.total, PartitionClass::kCompute), 600'000);
  EXPECT_EQ(r.partition.counts.communication, 6);
  EXPECT_EQ(r.tracelens->compute, 900'000) << "by its own rules, which go by the name nccl";
}

TEST(N01, ANameThatOnlyHintsIsNamedWithItsShare) {
  KinetoText t;
  t.kernel("gemm", 7, "10", "900", 1).launch("0", "1", 1);
  t.kernel("gemm_reduce_scatter_kernel", 7, "910", "100", 2).launch("2", "1", 2);
  const TraceAnalysis a = analyze({t.write("hint.json")});
  EXPECT_EQ(a.outcome, TraceOutcome::kPartial);
  EXPECT_TRUE(has(to_text(a),
                  "1 kernel has a name that may be communication and is not counted as such: 10 % of the time "
                  "(gemm_reduce_scatter_kernel)"))
      << to_text(a);
  KinetoText small;
  small.kernel("gemm", 7, "10", "9990", 1)
      .launch("0", "1", 1)
      .kernel("p2p_write", 7, "10000", "10", 2)
      .launch("2", "1", 2);
  const TraceAnalysis b = analyze({small.write("hint_small.json")});
  EXPECT_EQ(b.outcome, TraceOutcome::kClean) << "a thousandth is said, no more";
  EXPECT_TRUE(has(to_text(b), "0.1 % of the time (p2p_write)")) << to_text(b);
}

TEST(N01, WorkInsideACollectivesCallThatIsNoneIsNamed) {
  KinetoText t;
  t.annotation("nccl:all_reduce", "0", "10").kernel("my_ring_kernel", 20, "10", "50", 1).launch("2", "1", 1);
  t.annotation("nccl:all_reduce", "20", "10").kernel("ncclDevKernel_AllReduce", 20, "60", "50", 2).launch("22", "1", 2);
  const TraceAnalysis a = analyze({t.write("unknown_collective.json")});
  EXPECT_EQ(a.outcome, TraceOutcome::kPartial);
  EXPECT_TRUE(has(to_text(a),
                  "1 host range of all_reduce launched no operation that is known to communicate: 1 operation "
                  "inside may, 50 % of the time"))
      << to_text(a);
}

TEST(N03, TwoRanksMergedInOneFileAreRefusedWhereNothingTellsThemApart) {
  const std::string why = refusal(report("merged_same_node.json"));
  EXPECT_TRUE(has(why, "several processes (5000, 5001) whose correlation ids collide")) << why;
  EXPECT_TRUE(has(why, "give one file of each rank")) << why;
}

// Ids that do not collide say whose each kernel is.
TEST(N03, MergedRanksWithoutCollidingIdsAreARowEach) {
  std::string text = read_file(report("merged_same_node.json"));
  Json merged = Json::parse(text);
  for (Json& e : merged["traceEvents"]) {
    const bool second = e["pid"] == 5001 || (e["cat"] == "kernel" && e["pid"] == 1);
    if (second && e.contains("args")) e["args"]["correlation"] = e["args"]["correlation"].get<int>() + 1000;
  }
  const TraceAnalysis a = analyze({write_file("merged_apart.json", merged.dump())});
  ASSERT_EQ(a.rows.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const TraceAnalysis alone = analyze({report("merged_rank" + std::to_string(i) + ".json")});
    EXPECT_EQ(classes(a.rows[i].total.partition.classes), classes(alone.rows.at(0).total.partition.classes));
    EXPECT_EQ(a.rows[i].overlap_pct, alone.rows[0].overlap_pct);
    EXPECT_FALSE(a.rows[i].rank.has_value()) << "the file's rank is of one of them";
    EXPECT_EQ(a.rows[i].process, 5000 + static_cast<std::int64_t>(i));
  }
}

// Two nodes: the same device number, even the same process id.
TEST(N03, IdsThatCollideInsideADeviceAreRefused) {
  for (const int pid : {5000, 7000}) {
    Json merged = Json::parse(read_file(report("merged_rank0.json")));
    const Json second = Json::parse(read_file(report("merged_rank1.json")));
    for (Json e : second["traceEvents"]) {
      if (e["cat"] == "kernel") e["pid"] = 0, e["args"]["device"] = 0;
      if (e["cat"] != "kernel") e["pid"] = pid;
      merged["traceEvents"].push_back(e);
    }
    const std::string why = refusal(write_file("same_ids.json", merged.dump()));
    EXPECT_TRUE(has(why, pid == 5000 ? "correlation ids more than once" : "ids collide")) << why;
  }
}

TEST(N05, CopiesToOtherDevicesInsideAGatherAreTheGather) {
  const TraceAnalysis a = analyze({report("ce_all_gather_and_rs_kernel.json")});
  const RowAnalysis& r = a.rows.at(0);
  EXPECT_EQ(a.outcome, TraceOutcome::kClean);
  EXPECT_NEAR(*r.overlap_pct, 60.606, 1e-3);
  EXPECT_EQ(r.partition.all_gather.ns, 280'000);
  EXPECT_EQ(r.partition.all_gather.hidden_ns, 200'000);
  EXPECT_EQ(column(r.total, PartitionClass::kExposedReduceScatter), 50'000);
  EXPECT_EQ(exposed(r.total.partition.classes), 130'000);
  EXPECT_EQ(column(r.total, PartitionClass::kCopy), 0);
  EXPECT_EQ(r.partition.counts.communication, 5) << "four gathers and a reduction";
  EXPECT_TRUE(has(to_text(a), "28 copies to other devices launched inside ranges of collectives"));
}

TEST(N08, TablesWithASuffixAreReadAndSaid) {
  for (const char* name : {"nsys_v2.sqlite", "nsys_nvtx_v2.sqlite"}) {
    const TraceAnalysis a = analyze({report(name)});
    ASSERT_EQ(a.rows.size(), 1u) << name;
    EXPECT_NEAR(*a.rows[0].overlap_pct, 66.6667, 1e-4);
    EXPECT_TRUE(a.rows[0].partition.has_steps);
    EXPECT_EQ(a.rows[0].partition.steps.size(), 1u);
    EXPECT_TRUE(has(to_text(a), "table NVTX_EVENTS_V2 is read as NVTX_EVENTS"));
  }
}

TEST(N08, TablesOfDeviceWorkThatAreNotReadAreNamed) {
  NsysFile f("other_table.sqlite");
  f.kernel(0, 1 << 24, 7, "gemm", 100, 200, 1).launch(1 << 24, "cudaLaunchKernel", 50, 60, 1);
  f.sql("CREATE TABLE CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS(start INTEGER, end INTEGER, deviceId INTEGER)");
  f.sql("INSERT INTO CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS VALUES(120, 150, 0)");
  const TraceAnalysis a = analyze({f.close()});
  EXPECT_EQ(a.outcome, TraceOutcome::kPartial);
  EXPECT_TRUE(has(to_text(a), "table CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS is not read: 1 row")) << to_text(a);
}

TEST(N14, OneKindOfStepIsChosenAndSaid) {
  const TraceAnalysis a = analyze({report("nested_step.json")});
  const RowAnalysis& r = a.rows.at(0);
  ASSERT_EQ(r.partition.steps.size(), 3u);
  const fsdp::Nanos lengths[] = {1'000'000, 1'000'000, 900'000};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(r.partition.steps[i].length(), lengths[i]);
    EXPECT_EQ(column(r.partition.steps[i], PartitionClass::kExposedReduceScatter), 60'000);
  }
  EXPECT_TRUE(has(to_text(a), "steps are the 3 ranges \"ProfilerStep#\"")) << to_text(a);
  EXPECT_TRUE(has(to_text(a), "3 of \"step\""));
}

// Outer numbered ones before inner ones, doubles once, another thread's copies not at all.
TEST(N14, OfOtherKindsTheOneAroundIsChosen) {
  KinetoText t;
  for (int i = 0; i < 3; ++i) {
    const int z = 100 * i;
    t.annotation("iteration " + std::to_string(i), std::to_string(z), "100");
    t.annotation("iteration " + std::to_string(i), std::to_string(z + 1), "98");     // doubled
    t.annotation("iteration " + std::to_string(i), std::to_string(z + 2), "90", 8);  // on another thread
    t.annotation("step", std::to_string(z + 60), "30");
    for (int k = 0; k < 2; ++k) {
      const int c = 10 * i + k + 1;
      t.kernel("gemm", 7, std::to_string(z + 50 * k + 15), "20", c).launch(std::to_string(z + 50 * k + 12), "1", c);
    }
  }
  const TraceAnalysis a = analyze({t.write("step_kinds.json")});
  EXPECT_EQ(a.rows.at(0).partition.steps.size(), 3u);
  EXPECT_TRUE(has(to_text(a), "6 of \"iteration\" (doubled), 3 of \"step\"")) << to_text(a);
}

TEST(N15, ExpandableSegmentsAreAMemoryWait) {
  const RowAnalysis r = analyze({report("expandable_segments.json")}).rows.at(0);
  EXPECT_EQ(column(r.total, PartitionClass::kMemoryWait), 450'000);
  EXPECT_EQ(column(r.total, PartitionClass::kHost), 10'000);
}

TEST(N16, DeviceEventsOfAnUnknownCategoryAreNamed) {
  const TraceAnalysis a = analyze({report("mtia_small.json")});
  EXPECT_EQ(a.outcome, TraceOutcome::kNoDeviceActivity);
  EXPECT_TRUE(has(to_text(a), "device events of a category not known: mtia_ccp_events (1 event, 50.000 us in all)"));
  EXPECT_FALSE(has(to_text(a), "host events only")) << to_text(a);
  for (const char* category : {"xpu_op", "hpu_kernels", "npu", "privateuse1_events"}) {
    KinetoText t;
    t.kernel("gemm", 7, "0", "100", 1).launch("-5", "1", 1).kernel("other", 3, "50", "100", 2, category);
    const TraceAnalysis b = analyze({t.write("category.json")});
    EXPECT_EQ(b.outcome, TraceOutcome::kPartial) << category;
    EXPECT_TRUE(has(to_text(b), std::string("category not known: ") + category)) << to_text(b);
  }
  KinetoText none;
  none.event(
      "{\"ph\": \"X\", \"name\": \"fusion.3\", \"pid\": 1, \"tid\": 2, \"ts\": 5, \"dur\": 9, \"args\": {\"hlo_op\": "
      "\"f\"}}");
  EXPECT_TRUE(has(to_text(analyze({none.write("none.json")})), "category not known: (no category)"));
}

// --- launches, processes, steps ---

// Ten kernels of 10 us, one each 20 us; the launches of three have no kernel, so that 80 us of 200 may hold theirs.
TEST(Unrecorded, LaunchesWithoutAKernelMakeThatPartOfTheStepUnknown) {
  KinetoText t;
  t.annotation("ProfilerStep#1", "0", "300");
  int at = 100;
  for (int i = 1; i <= 10; ++i) {
    t.launch(std::to_string(10 + i), "0.5", i);
    if (i == 3 || i == 6 || i == 9) continue;
    t.kernel("gemm", 7, std::to_string(at), "10", i);
    at += i + 1 == 3 || i + 1 == 6 || i + 1 == 9 ? 30 : 10;
  }
  const TraceAnalysis a = analyze({t.write("unrecorded.json")});
  EXPECT_EQ(a.outcome, TraceOutcome::kPartial);
  const RowAnalysis& r = a.rows.at(0);
  EXPECT_EQ(r.total.unrecorded, 60'000);
  EXPECT_EQ(r.total.length(), 130'000);
  EXPECT_TRUE(has(to_text(a), "3 launches have no kernel in the trace (of 10): 46 % of the step is unknown"))
      << to_text(a);
}

TEST(Unrecorded, ProcessesWithoutKernelsAreNamed) {
  NsysFile f("four_processes.sqlite");
  for (std::int64_t p = 1; p <= 4; ++p) f.launch(p << 24, "cudaLaunchKernel", 50, 60, 1);
  f.kernel(0, 1 << 24, 7, "gemm", 100, 200, 1);
  const TraceAnalysis a = analyze({f.close()});
  EXPECT_EQ(a.outcome, TraceOutcome::kPartial);
  EXPECT_TRUE(has(to_text(a), "3 of 4 processes have no kernels in this trace (2, 3, 4)")) << to_text(a);
}

TEST(Unrecorded, WithoutATableOfKernelsThatIsWhatIsSaid) {
  NsysFile f("v27.sqlite");
  for (std::int64_t p = 1; p <= 2; ++p) f.launch(p << 24, "cudaLaunchKernel", 50, 60, 1);
  for (const char* kind : {"KERNEL", "MEMCPY"}) f.sql(std::string("DROP TABLE CUPTI_ACTIVITY_KIND_") + kind);
  const TraceAnalysis a = analyze({f.close()});
  EXPECT_EQ(a.outcome, TraceOutcome::kNoDeviceActivity);
  EXPECT_TRUE(has(to_text(a), "no table of kernels")) << to_text(a);
}

TEST(StepsWithoutWork, AStepAfterTheLastWorkHasItsWindow) {
  KinetoText t;
  t.annotation("ProfilerStep#1", "200", "100").kernel("gemm", 7, "10", "10", 1).launch("1", "1", 1);
  t.kernel("gemm", 7, "100", "10", 2).launch("2", "1", 2);
  const TraceAnalysis a = analyze({t.write("h17.json")});
  const RowAnalysis& r = a.rows.at(0);
  ASSERT_EQ(r.partition.steps.size(), 1u);
  EXPECT_EQ(classes(r.total.partition.classes), "idle 100000");
  EXPECT_FALSE(has(to_text(a), "no step boundaries"));
  EXPECT_TRUE(has(to_text(a), "2 operations before the first step (20.000 us of work in 100.000 us) are in no step"))
      << to_text(a);
}

TEST(StepsWithoutWork, OneInAGapHasThatPartAndAShortOneAtTheEndIsLeftOut) {
  KinetoText t;
  t.annotation("ProfilerStep#1", "0", "100").annotation("ProfilerStep#2", "100", "50");
  t.annotation("ProfilerStep#3", "150", "100").annotation("ProfilerStep#4", "250", "1");
  t.kernel("gemm", 7, "10", "50", 1).launch("1", "1", 1).kernel("gemm", 7, "170", "80", 2).launch("160", "1", 2);
  const TraceAnalysis a = analyze({t.write("empty_steps.json")});
  const RowAnalysis& r = a.rows.at(0);
  ASSERT_EQ(r.partition.steps.size(), 4u);
  EXPECT_EQ(classes(r.partition.steps[0].partition.classes), "compute 50000, host 40000");
  EXPECT_EQ(classes(r.partition.steps[1].partition.classes), "host 70000");
  EXPECT_EQ(classes(r.partition.steps[2].partition.classes), "compute 80000");
  EXPECT_TRUE(r.partition.steps[3].left_out);
  EXPECT_EQ(r.steps_counted, 3u);
  EXPECT_EQ(sum(r.total.partition.classes), 240'000);
}

// Between two gathers the host sits 48 ms in a synchronization, while the first gather waits for its peers.
TEST(HostSync, TheCallBetweenGathersIsNamed) {
  KinetoText t;
  t.kernel("ncclDevKernel_AllGather", 20, "10", "48000", 1).launch("5", "1", 1);
  t.launch("8", "48000", 2, "cudaStreamSynchronize");
  t.kernel("ncclDevKernel_AllGather", 20, "48020", "1000", 3).launch("48010", "1", 3);
  t.kernel("gemm", 7, "49020", "1000", 4).launch("48015", "1", 4);
  const TraceAnalysis a = analyze({t.write("host_sync.json")});
  const AnalysisFinding& f = a.rows.at(0).findings.at(0);
  EXPECT_EQ(f.kind, "host_sync");
  EXPECT_TRUE(has(f.text, "blocked in cudaStreamSynchronize (1 call, 47,998.000 us")) << f.text;
  EXPECT_TRUE(has(f.text, "prefetch explicitly")) << f.text;
  EXPECT_EQ(f.ns, 47'998'000);
  // A call after the last gather holds nothing up.
  KinetoText last;
  last.kernel("ncclDevKernel_AllGather", 20, "10", "48000", 1).launch("5", "1", 1);
  last.launch("8", "48000", 2, "cudaStreamSynchronize");
  const TraceAnalysis after = analyze({last.write("host_sync_last.json")});
  for (const AnalysisFinding& g : after.rows.at(0).findings) EXPECT_NE(g.kind, "host_sync");
}

}  // namespace
}  // namespace harness::testing
