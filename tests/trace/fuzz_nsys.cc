// libFuzzer target: bytes that begin as a SQLite file are one; all others say which tables, columns and values an
// export holds, so that what lies behind SQLite's own checks is reached too.
#include <fuzzer/FuzzedDataProvider.h>
#include <sqlite3.h>

#include <cstring>
#include <vector>

#include "tests/trace/fuzz_answer.h"

namespace {

struct Table {
  const char* name;
  std::vector<const char*> columns;
};

const std::vector<Table>& tables() {
  static const std::vector<const char*> operation = {"start",         "end",       "deviceId",      "streamId",
                                                     "correlationId", "globalPid", "demangledName", "shortName"};
  static const std::vector<const char*> copy = {"start",         "end",       "deviceId", "streamId",
                                                "correlationId", "globalPid", "bytes"};
  static const std::vector<Table> all = {
      {"CUPTI_ACTIVITY_KIND_KERNEL", operation},
      {"CUPTI_ACTIVITY_KIND_MEMCPY", copy},
      {"CUPTI_ACTIVITY_KIND_MEMSET", copy},
      {"CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "end", "globalTid", "correlationId", "nameId"}},
      {"NVTX_EVENTS", {"start", "end", "eventType", "globalTid", "text", "textId"}},
      {"StringIds", {"id", "value"}},
      {"META_DATA_EXPORT", {"name", "value"}},
      {"TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"}},
      {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {"start", "end"}},
      {"TARGET_INFO_CUDA_DEVICE", {"gpuId", "pid"}},
      {"CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS", {"start", "end", "deviceId"}},
  };
  return all;
}

const char* const kTexts[] = {"ncclDevKernel_AllGather_RING_LL",
                              "ncclDevKernel_ReduceScatter",
                              "gemm",
                              "step 1",
                              "ProfilerStep#2",
                              "Optimizer.step#A.step",
                              "FSDP::all_gather (layers.0)",
                              "FSDP::post_backward_reduce (layers.1)",
                              "FullyShardedDataParallel.forward",
                              "FullyShardedDataParallel._pre_backward_hook",
                              "ncclAllGather",
                              "unit3.fwd.all_gather",
                              "unit3.bwd.copy_out",
                              "cudaMalloc",
                              "cudaLaunchKernel",
                              "cudaGraphLaunch",
                              "cudaStreamSynchronize",
                              "cuMemMap",
                              "step",
                              "iteration 4",
                              "multimem_all_reduce_kernel",
                              "gemm_reduce_scatter_kernel",
                              "EXPORT_SCHEMA_VERSION",
                              "3.25.0"};

std::string value(FuzzedDataProvider& in) {
  switch (in.ConsumeIntegralInRange(0, 9)) {
    case 0:
      return "NULL";
    case 1:
      return std::to_string(in.ConsumeIntegral<std::int64_t>());
    case 2:
      return "1e300";
    case 3:
    case 4:
      return "'" + std::string(kTexts[in.ConsumeIntegralInRange<std::size_t>(0, std::size(kTexts) - 1)]) + "'";
    case 5:
      return in.ConsumeBool() ? "59" : "60";
    case 6:
      return std::to_string((std::int64_t{in.ConsumeIntegralInRange(0, 2)} << 24) | in.ConsumeIntegralInRange(0, 3));
    default:
      return std::to_string(in.ConsumeIntegralInRange(0, 1000));
  }
}

void fill(sqlite3* db, FuzzedDataProvider& in) {
  std::string sql = "BEGIN;";
  for (const Table& t : tables()) {
    const auto missing = in.ConsumeIntegral<std::uint8_t>();  // 0: the whole table; else one column, mostly none
    if (missing == 0) continue;
    std::size_t columns = 0;
    const std::string name = std::string(t.name) + (in.ConsumeIntegralInRange(0, 5) == 1 ? "_V2" : "");
    sql += "CREATE TABLE " + name + "(";
    for (std::size_t i = 0; i < t.columns.size(); ++i) {
      if (missing == i + 1) continue;
      sql += (columns++ > 0 ? "," : "") + ("\"" + std::string(t.columns[i]) + "\"");
    }
    if (columns == 0) sql += "other", columns = 1;
    sql += ");";
    for (int rows = in.ConsumeIntegralInRange(0, 12); rows > 0 && in.remaining_bytes() > 0; --rows) {
      sql += "INSERT INTO " + name + " VALUES(";
      for (std::size_t c = 0; c < columns; ++c) sql += (c > 0 ? "," : "") + value(in);
      sql += ");";
    }
  }
  sqlite3_exec(db, (sql + "COMMIT").c_str(), nullptr, nullptr, nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n >= 15 && std::memcmp(bytes, "SQLite format 3", 15) == 0) {
    harness::testing::check_trace(bytes, n);
    return 0;
  }
  sqlite3* db = nullptr;
  harness::testing::require(sqlite3_open(":memory:", &db) == SQLITE_OK);
  FuzzedDataProvider in(bytes, n);
  fill(db, in);
  sqlite3_int64 size = 0;
  unsigned char* image = sqlite3_serialize(db, "main", &size, 0);
  if (image != nullptr) harness::testing::check_trace(image, static_cast<std::size_t>(size));
  sqlite3_free(image);
  sqlite3_close(db);
  return 0;
}
