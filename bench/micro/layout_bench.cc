// Layouts: from parameter sizes to offsets, for one unit of a transformer block repeated.
#include <benchmark/benchmark.h>

#include "fsdp/plan/shard_layout.h"

namespace {
using namespace fsdp;

std::vector<std::vector<Count>> shapes(int blocks) {
  std::vector<std::vector<Count>> all;
  for (int b = 0; b < blocks; ++b) {
    for (const auto& s : std::vector<std::vector<Count>>{{4096, 4096},
                                                         {1024, 4096},
                                                         {1024, 4096},
                                                         {4096, 4096},
                                                         {14336, 4096},
                                                         {14336, 4096},
                                                         {4096, 14336},
                                                         {4096},
                                                         {4096}})
      all.push_back(s);
  }
  return all;
}

void flat_layout(benchmark::State& state) {
  std::vector<Count> numels;
  for (const auto& s : shapes(static_cast<int>(state.range(0)))) numels.push_back(s.size() > 1 ? s[0] * s[1] : s[0]);
  for (auto _ : state) benchmark::DoNotOptimize(make_flat_layout(numels, 64, 64));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(numels.size()));
}
BENCHMARK(flat_layout)->Arg(1)->Arg(32);

void per_parameter_layout(benchmark::State& state) {
  const auto all = shapes(static_cast<int>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(make_per_parameter_layout(all, 64, 64));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(all.size()));
}
BENCHMARK(per_parameter_layout)->Arg(1)->Arg(32);

}  // namespace
