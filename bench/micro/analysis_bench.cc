// Reading and explaining: traces in MB/s of text, the partition per million spans, a report of 500 cases.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "harness/analysis/partition.h"
#include "harness/trace/analyze.h"
#include "reports/html.h"
#include "tests/testing/synthetic_step.h"
#include "tests/testing/synthetic_sweep.h"

namespace {

// A Kineto trace of one rank: per cell a launch, a kernel, and every fourth a collective on a stream of its own.
std::string kineto_text(int cells) {
  std::string text =
      R"({"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":0,"world_size":2},"traceEvents":[)";
  const auto event = [&](const std::string& cat, const std::string& name, const std::string& tid, long ts, int dur,
                         const std::string& args) {
    if (text.back() == '}') text += ",\n";
    text += R"({"ph":"X","cat":")" + cat + R"(","name":")" + name + R"(","pid":0,"tid":)" + tid + R"(,"ts":)" +
            std::to_string(ts) + R"(,"dur":)" + std::to_string(dur) + R"(,"args":{)" + args + "}}";
  };
  for (int i = 0; i < cells; ++i) {
    const bool collective = i % 4 == 3;
    const std::string id = R"("correlation":)" + std::to_string(i + 1);
    event("cuda_runtime", "cudaLaunchKernel", "100", 50L * i, 4, id);
    event("kernel", collective ? "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)" : "sm80_xmma_gemm_f32f32_tn_n",
          collective ? "20" : "7", 50L * i + 10, collective ? 60 : 38,
          id + R"(,"device":0,"stream":)" + (collective ? "20" : "7"));
  }
  return text + "]}";
}

class TraceFile {
 public:
  explicit TraceFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / ("micro_bench_" + std::to_string(::getpid()) + ".json"))
                  .string()) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TraceFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void read_kineto(benchmark::State& state) {
  const std::string text = kineto_text(40'000);
  const TraceFile file(text);
  harness::AnalyzeOptions options;
  options.paths = {file.path()};
  for (auto _ : state) benchmark::DoNotOptimize(harness::analyze_traces(options).rows.size());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(read_kineto)->Unit(benchmark::kMillisecond);

void partition(benchmark::State& state) {
  testing_support::SyntheticStep step;
  for (int i = 0; i < state.range(0); ++i) step.units.push_back({"unit", 1'000'000});
  const std::vector<fsdp::Span> spans = testing_support::synthetic_spans(step);
  for (auto _ : state) benchmark::DoNotOptimize(harness::partition_steps(spans));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(spans.size()));
  state.counters["ms_per_million_spans"] =
      benchmark::Counter(static_cast<double>(spans.size()) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(partition)->Arg(33)->Arg(1000)->Arg(20'000);

void report_of_500_cases(benchmark::State& state) {
  testing_support::SyntheticOptions options;
  options.cases = 500, options.ranks = 8;
  const auto s = testing_support::synthetic_sweep(options);
  std::size_t bytes = 0;
  for (auto _ : state) bytes = reports::report_html({{s.sweep, s.cases}}).size();
  state.counters["page_bytes"] = static_cast<double>(bytes);
}
BENCHMARK(report_of_500_cases)->Unit(benchmark::kMillisecond);

}  // namespace
