#include "harness/trace/nsys_reader.h"

#include "fsdp/core/errors.h"
#include "tests/trace/nsys_file.h"

namespace harness::testing {
namespace {

constexpr std::int64_t kOne = std::int64_t{1} << 24, kTwo = std::int64_t{2} << 24;

std::string refusal(const std::string& path) {
  try {
    analyze({path});
  } catch (const fsdp::ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(NsysReader, ProcessesThatShareCorrelationIdsAreKeptApart) {
  NsysFile f("two.sqlite");
  f.kernel(0, kOne, 7, "a", 100, 200, 1).launch(kOne, "cudaLaunchKernel", 50, 60, 1);
  f.kernel(0, kOne, 7, "a", 300, 400, 2).launch(kOne, "cudaLaunchKernel", 290, 295, 2);
  f.kernel(1, kTwo, 7, "b", 100, 200, 1).launch(kTwo, "cudaLaunchKernel", 90, 95, 1);
  f.kernel(1, kTwo, 7, "b", 300, 400, 2).launch(kTwo, "cudaLaunchKernel", 150, 155, 2);
  const TraceAnalysis a = analyze({f.close()});
  ASSERT_EQ(a.rows.size(), 2u);
  EXPECT_EQ(a.rows[0].total.host_not_issued, 90);
  EXPECT_EQ(a.rows[0].total.host_launch, 10);
  EXPECT_EQ(a.rows[1].total.idle_dependency, 100) << "launched before the gap began";
}

TEST(NsysReader, WithoutGlobalPidOneProcessIsTakenAndSeveralAreRefused) {
  NsysFile one("reduced1.sqlite");
  one.kernel(0, kOne, 7, "a", 100, 200, 1).launch(kOne, "cudaLaunchKernel", 50, 60, 1);
  one.sql("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid").sql("DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY");
  EXPECT_EQ(analyze({one.close()}).rows.at(0).partition.counts.without_launch, 0);
  NsysFile two("reduced2.sqlite");
  two.kernel(0, kOne, 7, "a", 100, 200, 1)
      .launch(kOne, "cudaLaunchKernel", 50, 60, 1)
      .launch(kTwo, "cudaLaunchKernel", 50, 60, 1);
  two.sql("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid").sql("DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY");
  EXPECT_NE(refusal(two.close()).find("globalPid"), std::string::npos);
}

TEST(NsysReader, RangeTextIsReadFromEitherColumn) {
  for (const bool registered : {false, true}) {
    NsysFile f("text.sqlite");
    f.kernel(0, kOne, 7, "adam", 100, 200, 1).launch(kOne, "cudaLaunchKernel", 50, 60, 1);
    f.range(kOne, "Optimizer.step#AdamW.step", 40, 80, registered);
    EXPECT_EQ(column(analyze({f.close()}).rows.at(0).total, PartitionClass::kOptimizer), 100);
  }
}

TEST(NsysReader, OurOwnRangesNameUnitAndPass) {
  NsysFile f("own.sqlite");
  f.kernel(0, kOne, 20, "ncclDevKernel_AllGather_RING_LL", 100, 200, 1).launch(kOne, "cudaLaunchKernel", 50, 60, 1);
  f.kernel(0, kOne, 20, "ncclDevKernel_AllGather_RING_LL", 300, 400, 2).launch(kOne, "cudaLaunchKernel", 250, 260, 2);
  f.kernel(0, kOne, 7, "cast", 500, 600, 3).launch(kOne, "cudaLaunchKernel", 450, 460, 3);
  f.range(kOne, "unit3.fwd.all_gather", 40, 80, true).range(kOne, "unit3.bwd.all_gather", 240, 280, true);
  f.range(kOne, "unit3.bwd.cast", 440, 480, true);
  const RowAnalysis r = analyze({f.close()}).rows.at(0);
  EXPECT_EQ(column(r.total, PartitionClass::kExposedAllGatherForward), 100);
  EXPECT_EQ(column(r.total, PartitionClass::kExposedAllGatherBackward), 100);
  EXPECT_EQ(column(r.total, PartitionClass::kCopy), 100);
  EXPECT_EQ(*r.unit_names, (std::vector<std::string>{"unit3"}));
}

TEST(NsysReader, ACopyInsideTheLibrarysOwnRangeIsCommunication) {
  NsysFile f("ce.sqlite");
  f.memcpy(0, kOne, 20, 100, 200, 1)
      .launch(kOne, "cudaMemcpyAsync", 50, 60, 1)
      .range(kOne, "ncclAllGather", 40, 80, true);
  f.memcpy(0, kOne, 7, 300, 400, 2).launch(kOne, "cudaMemcpyAsync", 250, 260, 2);
  const RowAnalysis r = analyze({f.close()}).rows.at(0);
  EXPECT_EQ(exposed(r.total.partition.classes), 100);
  EXPECT_EQ(column(r.total, PartitionClass::kCopy), 100);
}

TEST(NsysReader, WaitsInsideAllocationCallsAreMemoryWait) {
  NsysFile f("malloc.sqlite");
  f.kernel(0, kOne, 7, "a", 0, 100, 1).launch(kOne, "cudaLaunchKernel", -50, -40, 1);
  f.launch(kOne, "cudaMalloc_v3020", 120, 150, 9);
  f.kernel(0, kOne, 7, "a", 200, 300, 2).launch(kOne, "cudaLaunchKernel", 160, 165, 2);
  const RowAnalysis r = analyze({f.close()}).rows.at(0);
  EXPECT_EQ(classes(r.total.partition.classes), "compute 200, host 70, memory_wait 30");
  EXPECT_EQ(r.total.host_not_issued, 30);
}

TEST(NsysReader, WholeGraphsArePartial) {
  NsysFile f("graph.sqlite");
  f.kernel(0, kOne, 7, "a", 100, 200, 1).launch(kOne, "cudaLaunchKernel", 50, 60, 1);
  f.sql("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER)")
      .sql("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES(1,2)");
  const TraceAnalysis a = analyze({f.close()});
  EXPECT_EQ(a.outcome, TraceOutcome::kPartial);
  EXPECT_NE(to_text(a).find("cuda-graph-trace=node"), std::string::npos);
}

TEST(NsysReader, AnotherSchemaOrAnotherDatabaseIsRefused) {
  NsysFile f("schema.sqlite");
  f.sql("UPDATE META_DATA_EXPORT SET value='4.0.0'");
  EXPECT_NE(refusal(f.close()).find("schema 4.0.0"), std::string::npos);
  NsysFile g("other.sqlite");
  for (const char* t : {"META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY",
                        "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"}) {
    g.sql(std::string("DROP TABLE ") + t);
  }
  EXPECT_NE(refusal(g.close()).find("no Nsight Systems export"), std::string::npos);
}

TEST(NsysReader, EmptyTablesAreNoDeviceActivity) {
  EXPECT_EQ(analyze({NsysFile("empty.sqlite").close()}).outcome, TraceOutcome::kNoDeviceActivity);
}

TEST(NsysReader, TheSourceIsNotChanged) {
  NsysFile f("same.sqlite");
  f.kernel(0, kOne, 7, "a", 100, 200, 1);
  const std::string path = f.close(), before = read_file(path);
  analyze({path});
  EXPECT_EQ(read_file(path), before);
}

}  // namespace
}  // namespace harness::testing
