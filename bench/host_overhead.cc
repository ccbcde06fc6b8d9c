// What a unit costs the host: whole training steps of a model so small that nothing else counts, over collectives that
// return at once, wrapped by block and as one unit. One rank of two. bench/host_overhead.py runs it beside PyTorch's
// FSDP.
//
//   host_overhead STEPS ROUNDS      one JSON document a round: nanoseconds and CPU nanoseconds of a step, by wrap
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "bench/at_once.h"
#include "bench/program.h"
#include "fsdp/comm/host_collectives.h"
#include "fsdp/core/clock.h"
#include "fsdp/core/memory_meter.h"
#include "fsdp/device/host/host_device.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/trainer.h"

namespace {

using namespace fsdp;

constexpr int kWarmup = 5;

struct Run {
  Run(const std::string& wrap) : device({.rank = 0}), collectives(device, transports()) {
    harness::TrainerSettings s;
    s.model.layers = 32, s.model.dim = 32, s.model.heads = s.model.kv_heads = 1, s.model.ffn = 64, s.model.vocab = 64;
    s.model.seq = 8;
    const UnitPlan plan = make_unit_plan(harness::describe_model(s.model), parse_wrap(wrap), {});
    trainer = std::make_unique<harness::Trainer>(s, plan, device, collectives, meter);
    for (int i = 0; i < kWarmup; ++i) trainer->step();
  }
  ~Run() { device.cancel(); }
  static HostTransports transports() {
    HostTransports t;
    t.world = std::make_unique<bench::AtOnce>();
    return t;
  }
  std::string measure(int steps) {
    const Nanos begin = steady_now(), cpu = bench::process_cpu();
    for (int i = 0; i < steps; ++i) trainer->step();
    return fmt::format(R"({{"step_ns": {}, "cpu_ns": {}}})", (steady_now() - begin) / steps,
                       (bench::process_cpu() - cpu) / steps);
  }

  MemoryMeter meter;
  HostDevice device;
  HostCollectives collectives;
  std::unique_ptr<harness::Trainer> trainer;
};

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program([&] {
    const int steps = bench::number_at(argc, argv, 1, "STEPS", 50),
              rounds = bench::number_at(argc, argv, 2, "ROUNDS", 5);
    Run root("root"), block("block");
    for (int i = 0; i < rounds; ++i)
      std::cout << fmt::format("{{\"root\": {}, \"block\": {}}}", root.measure(steps), block.measure(steps))
                << std::endl;
  });
}
