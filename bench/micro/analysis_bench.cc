// Reading and explaining: traces in MB/s of text, the partition per million spans, a report of 500 cases.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fsdp/schedule/scripted_step.h"
#include "harness/analysis/partition.h"
#include "harness/trace/analyze.h"
#include "reports/html.h"

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

// A traced step of `units` units on the virtual clock, whose network takes as long as compute.
std::vector<fsdp::Span> step_spans(int units, int rank) {
  using namespace fsdp;
  std::vector<UnitTraits> traits;
  std::vector<UnitBytes> bytes;
  for (int i = 0; i < units; ++i) {
    traits.push_back({.name = "unit", .unsharded_bytes = 4096});
    bytes.push_back({.parameters = 2048, .unsharded = 4096, .reduce = 4096, .gradient = 2048});
  }
  VirtualDevice device;
  VirtualCollectives collectives(device, 2, [](const CollectiveCall&) { return Nanos{50'000}; });
  MemoryMeter meter;
  CountingUnitMemory memory(bytes, std::vector<bool>(bytes.size(), false), meter);
  Scheduler scheduler(traits, {}, device, collectives, memory, &meter);
  device.set_recording(true);
  run_scripted_step(scheduler, device, 0, sequence_script(units), [&](Pass p, UnitId u) {
    device.charge(Lane::kCompute, {SpanKind::kCompute, u, p, 0}, 60'000 + 100 * rank);
  });
  std::vector<Span> spans = device.take_spans();
  for (Span& s : spans) s.rank = rank;
  return spans;
}

void partition(benchmark::State& state) {
  const std::vector<fsdp::Span> spans = step_spans(static_cast<int>(state.range(0)), 0);
  for (auto _ : state) benchmark::DoNotOptimize(harness::partition_steps(spans));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(spans.size()));
  state.counters["ms_per_million_spans"] =
      benchmark::Counter(static_cast<double>(spans.size()) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(partition)->Arg(33)->Arg(1000)->Arg(20'000);

// 20 wraps, 5 depths of prefetch, 5 batches; the same step of 8 ranks in each.
reports::ReportInput sweep_of_500() {
  reports::ReportInput in;
  in.sweep.name = "bench";
  std::vector<fsdp::Span> spans;
  for (int rank = 0; rank < 8; ++rank) {
    const auto own = step_spans(25, rank);
    spans.insert(spans.end(), own.begin(), own.end());
  }
  const auto first = harness::partition_steps(step_spans(25, 0)).at(0);
  for (int i = 0; i < 500; ++i) {
    harness::CaseRecord c;
    c.id = "case-" + std::to_string(i);
    c.axes = {{"wrap", "blocks:" + std::to_string(1 + i % 20)},
              {"forward_prefetch", std::to_string(i / 20 % 5)},
              {"batch", std::to_string(1 + i / 100)}};
    c.settings = c.axes;
    c.status = harness::Status::kOk;
    c.units = 40 / (1 + i % 20) + 1;
    c.step_ns = 1'000'000 + 1000 * (i * 37 % 101);
    c.step_ci_low_ns = *c.step_ns - 5000, c.step_ci_high_ns = *c.step_ns + 5000;
    c.samples.assign(9, *c.step_ns);
    c.tokens_per_s = 1e9 / static_cast<double>(*c.step_ns) * (1 + i / 100);
    c.peak_bytes = (100 + i % 20) << 20;
    c.partition = first.classes, c.partition_details = first.details, c.traced_step_ns = first.end - first.begin;
    c.spans = spans;
    in.cases.push_back(std::move(c));
  }
  return in;
}

void report_of_500_cases(benchmark::State& state) {
  const reports::ReportInput in = sweep_of_500();
  std::size_t bytes = 0;
  for (auto _ : state) bytes = reports::report_html({in}).size();
  state.counters["page_bytes"] = static_cast<double>(bytes);
}
BENCHMARK(report_of_500_cases)->Unit(benchmark::kMillisecond);

}  // namespace
