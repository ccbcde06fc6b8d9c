// Overlap where communication has a core of its own: one rank of two without the other, whose collectives copy its
// own part and hold their lane for as long as the emulated wire takes. What is lost against max(compute, network) is
// the schedule's and the runtime's: two ranks on two cores also take the copies of their collectives from their
// computation.
//
//   own_cores LAYERS,DIM,HEADS,FFN,VOCAB,SEQ,BATCH LATENCY_NS BYTES_PER_S STEPS
//
// One JSON document: of the step of median length what `run --json` has of a case.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bench/at_once.h"
#include "bench/program.h"
#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/wire.h"
#include "fsdp/core/memory_meter.h"
#include "fsdp/device/host/host_device.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/analysis/partition.h"
#include "harness/workload/trainer.h"

namespace {

using namespace fsdp;

constexpr int kWarmup = 3;

harness::TrainerSettings settings_of(const std::string& shape) {
  std::istringstream in(shape);
  harness::TrainerSettings s;
  std::array<std::int64_t, 7> numbers{};
  for (std::int64_t& n : numbers) in >> n, in.ignore(1);
  auto& m = s.model;
  m.layers = numbers[0], m.dim = numbers[1], m.heads = m.kv_heads = numbers[2], m.ffn = numbers[3];
  m.vocab = numbers[4], m.seq = numbers[5], s.batch = numbers[6];
  return s;
}

HostTransports transports(const Wire& wire) {
  HostTransports t;
  t.world = std::make_unique<EmulatedWire>(std::make_unique<bench::AtOnce>(), wire);
  return t;
}

std::vector<Span> traced(const harness::TrainerSettings& s, const Wire& wire, int steps) {
  const UnitPlan plan = make_unit_plan(harness::describe_model(s.model), parse_wrap("block"), {});
  MemoryMeter meter;
  HostDevice device({.rank = 0});
  HostCollectives collectives(device, transports(wire));
  harness::Trainer trainer(s, plan, device, collectives, meter);
  for (int i = 0; i < kWarmup; ++i) trainer.step();
  trainer.set_step(0);
  device.set_recording(true);
  for (int i = 0; i < steps; ++i) trainer.step();
  return device.take_spans();
}

std::string json_of(const harness::UnitMetrics& m) {
  return fmt::format(R"({{"unit_index": {}, "pass": "{}", "all_gathers": {}, "reduce_scatters": {}, )"
                     R"("all_gather_bytes": {}, "reduce_scatter_bytes": {}, "all_gather_ns": {}, )"
                     R"("reduce_scatter_ns": {}, "compute_ns": {}}})",
                     m.unit, name_of(m.pass), m.all_gathers, m.reduce_scatters, m.all_gather_bytes,
                     m.reduce_scatter_bytes, m.all_gather_ns, m.reduce_scatter_ns, m.compute_ns);
}

void print(const std::vector<Span>& spans) {
  const auto steps = harness::partition_steps(spans);
  const harness::StepPartition& step = steps[harness::median_step(steps)];
  std::string out = fmt::format("{{\"traced_step_ns\": {}", step.end - step.begin);
  for (int i = 0; i < harness::kPartitionClassCount; ++i)
    out += fmt::format(", \"{}_ns\": {}", name_of(static_cast<harness::PartitionClass>(i)),
                       step.classes[static_cast<std::size_t>(i)]);
  std::vector<std::string> units;
  for (const harness::UnitMetrics& m : unit_metrics(spans, step)) units.push_back(json_of(m));
  std::cout << out << fmt::format(", \"unit_metrics\": [{}]}}\n", fmt::join(units, ",\n"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "own_cores LAYERS,DIM,HEADS,FFN,VOCAB,SEQ,BATCH LATENCY_NS BYTES_PER_S STEPS\n";
    return 2;
  }
  return bench::run_program([&] {
    const Wire wire{bench::number_at(argc, argv, 2, "LATENCY_NS", std::int64_t{0}, std::int64_t{0}),
                    static_cast<double>(bench::number_at(argc, argv, 3, "BYTES_PER_S", std::int64_t{1}))};
    print(traced(settings_of(argv[1]), wire, bench::number_at(argc, argv, 4, "STEPS", 1)));
  });
}
