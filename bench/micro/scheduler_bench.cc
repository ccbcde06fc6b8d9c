// Host time of the scheduler alone: whole scripted steps on the virtual device, per unit and step.
#include <benchmark/benchmark.h>

#include "fsdp/schedule/scripted_step.h"

namespace {
using namespace fsdp;

void scheduler_step(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  std::vector<UnitTraits> traits;
  std::vector<UnitBytes> bytes;
  for (int i = 0; i < n; ++i) {
    traits.push_back({.name = "unit", .unsharded_bytes = 4096});
    bytes.push_back({.parameters = 2048, .unsharded = 4096, .reduce = 4096, .gradient = 2048});
  }
  VirtualDevice device;
  VirtualCollectives collectives(device, 2, [](const CollectiveCall&) { return Nanos{2}; });
  MemoryMeter meter;
  CountingUnitMemory memory(bytes, std::vector<bool>(bytes.size(), false), meter);
  Scheduler scheduler(traits, {}, device, collectives, memory, &meter);
  const Script script = sequence_script(n);
  int step = 0;
  for (auto _ : state)
    run_scripted_step(scheduler, device, step++, script, [&](Pass p, UnitId u) {
      device.charge(Lane::kCompute, {SpanKind::kCompute, u, p, 0}, 5);
    });
  state.counters["ns_per_unit"] = benchmark::Counter(
      static_cast<double>(n), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(scheduler_step)->Arg(1)->Arg(8)->Arg(33)->Arg(225)->Arg(1000);

}  // namespace
