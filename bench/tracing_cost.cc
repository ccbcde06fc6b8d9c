// What recording spans costs a training step: two ranks as threads, blocks of steps with recording off and on in the
// order off, on, on, off, so that what drifts falls on both alike. step_benches.py makes an estimate of it.
//
//   tracing_cost WRAP STEPS QUADS    one JSON document: nanoseconds and CPU nanoseconds (of both ranks) of a step, by
//                                    quad and block; spans of a step and nanoseconds of one of them
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/program.h"
#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/core/clock.h"
#include "fsdp/core/memory_meter.h"
#include "fsdp/device/host/host_device.h"
#include "fsdp/device/host/span_recorder.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/trainer.h"

namespace {

using namespace fsdp;

constexpr int kRanks = 2, kWarmup = 5;
constexpr Nanos kTimeout = 60'000'000'000;
constexpr std::array<bool, 4> kTraced = {false, true, true, false};

struct Block {
  Nanos step = 0, cpu = 0;
};
struct Result {
  std::vector<std::array<Block, 4>> quads;
  std::size_t spans = 0;  // of a step of rank 0
};

harness::TrainerSettings small_model() {
  harness::TrainerSettings s;
  s.model.layers = 4, s.model.dim = 128, s.model.heads = s.model.kv_heads = 4, s.model.ffn = 352, s.model.vocab = 512;
  s.model.seq = 64;
  s.batch = 4;
  return s;
}

struct Rank {
  Rank(const std::shared_ptr<ThreadBoard>& board, int rank, const harness::TrainerSettings& settings,
       const UnitPlan& plan)
      : device({.rank = rank, .timeout = kTimeout}),
        collectives(device, transports(board, rank)),
        trainer(settings, plan, device, collectives, meter) {}
  static HostTransports transports(const std::shared_ptr<ThreadBoard>& board, int rank) {
    HostTransports t;
    t.world = make_local_transport(board, rank, kTimeout);
    return t;
  }
  Block measure(bool traced, int steps, std::size_t& spans) {
    device.set_recording(traced);
    collectives.exchange(0);
    const Nanos begin = steady_now(), cpu = bench::process_cpu();
    for (int i = 0; i < steps; ++i) trainer.step();
    collectives.exchange(0);  // both ranks are done
    const Block b{(steady_now() - begin) / steps, (bench::process_cpu() - cpu) / steps};
    if (traced) spans = device.take_spans().size() / static_cast<std::size_t>(steps);
    return b;
  }

  MemoryMeter meter;
  HostDevice device;
  HostCollectives collectives;
  harness::Trainer trainer;
};

Result run_rank(const std::shared_ptr<ThreadBoard>& board, int number, const UnitPlan& plan, int steps, int quads) {
  Rank rank(board, number, small_model(), plan);
  for (int i = 0; i < kWarmup; ++i) rank.trainer.step();
  Result result;
  for (int q = 0; q < quads; ++q) {
    result.quads.emplace_back();
    for (std::size_t b = 0; b < kTraced.size(); ++b)
      result.quads.back()[b] = rank.measure(kTraced[b], steps, result.spans);
  }
  return result;
}

// An error of a rank ends the program: the other one gives up after the timeout.
Result run(const std::string& wrap, int steps, int quads) {
  const UnitPlan plan = make_unit_plan(harness::describe_model(small_model().model), parse_wrap(wrap), {});
  const auto board = make_thread_board(kRanks);
  std::thread other([&] { run_rank(board, 1, plan, steps, quads); });
  Result result = run_rank(board, 0, plan, steps, quads);
  other.join();
  return result;
}

// A change of context with a reading of the clock: the span that a step has most of.
double nanos_of_a_span() {
  constexpr int kRounds = 200, kSpans = 1000;
  std::vector<double> found;
  for (int r = 0; r < kRounds; ++r) {
    SpanRecorder recorder(0);
    recorder.set_on(true);
    recorder.begin_step(0, steady_now());
    const Nanos begin = steady_now();
    for (UnitId u = 0; u < kSpans; ++u) {
      const WorkTag tag{SpanKind::kCompute, u, Pass::kForward, 0};
      if (!recorder.has_context(tag)) recorder.set_context(tag, steady_now());
    }
    found.push_back(static_cast<double>(steady_now() - begin) / kSpans);
  }
  std::nth_element(found.begin(), found.begin() + kRounds / 2, found.end());
  return found[kRounds / 2];
}

void print(const Result& r) {
  std::vector<std::string> lines;
  for (const auto& quad : r.quads) {
    std::vector<std::string> blocks;
    for (const Block& b : quad) blocks.push_back(fmt::format(R"({{"step_ns": {}, "cpu_ns": {}}})", b.step, b.cpu));
    lines.push_back(fmt::format("[{}]", fmt::join(blocks, ", ")));
  }
  std::vector<int> traced(kTraced.begin(), kTraced.end());
  std::cout << fmt::format("{{\"spans\": {}, \"span_ns\": {:.1f}, \"traced\": [{}], \"quads\": [{}]}}\n", r.spans,
                           nanos_of_a_span(), fmt::join(traced, ", "), fmt::join(lines, ",\n"));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program([&] {
    const std::string wrap = argc > 1 ? argv[1] : "block";
    const int steps = bench::number_at(argc, argv, 2, "STEPS", 10);
    print(run(wrap, steps, bench::number_at(argc, argv, 3, "QUADS", 20)));
  });
}
