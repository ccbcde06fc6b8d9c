// What recording costs: a context and a wait per unit and pass, as a traced step makes them.
#include <benchmark/benchmark.h>

#include "fsdp/device/host/span_recorder.h"

namespace {
using namespace fsdp;

void record_span(benchmark::State& state) {
  constexpr int kUnits = 64;
  SpanRecorder recorder(0);
  Nanos t = 0;
  std::int64_t spans = 0;
  int step = 0;
  recorder.set_on(true);
  for (auto _ : state) {
    recorder.begin_step(step++, t);
    for (UnitId u = 0; u < kUnits; ++u) {
      recorder.set_context({SpanKind::kCompute, u, Pass::kForward, 0}, t += 5);
      recorder.add_wait(SpanKind::kWait, {SpanKind::kAllGather, u, Pass::kForward, 4096}, 1, t, t + 3);
      t += 3;
    }
    recorder.end_step(t += 5);
    std::vector<Span> taken = recorder.take();
    spans += static_cast<std::int64_t>(taken.size());
    benchmark::DoNotOptimize(taken.data());
  }
  state.SetItemsProcessed(spans);
}
BENCHMARK(record_span);

}  // namespace
