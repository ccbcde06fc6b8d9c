#include "harness/trial/calibration.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/comm/wire.h"
#include "fsdp/core/clock.h"
#include "fsdp/device/host/host_device.h"
#include "harness/analysis/statistics.h"
#include "harness/cost/cost_model.h"
#include "harness/cost/fit_costs.h"
#include "harness/trial/case_units.h"
#include "harness/trial/environment.h"
#include "harness/trial/op_observer.h"
#include "harness/trial/rank_world.h"

namespace harness {
namespace {

constexpr int kWorld = 2;
constexpr fsdp::Bytes kSharedMemory = fsdp::Bytes{2} << 30;
constexpr fsdp::Nanos kTimeout = 120'000'000'000;

double us_of(fsdp::Nanos ns) { return static_cast<double>(ns) * 1e-3; }

// Times the operators of several steps. The steps are kept whole: the least time of each operator over steps would add
// up to a step that never happens, since operators that share caches and memory bandwidth vary one by one.
class OpTimes final : public OpObserver {
 public:
  void begin_step() { steps_.emplace_back(); }
  void begins() override { begin_ = fsdp::steady_now(); }
  void ended() override { end_ = fsdp::steady_now(); }
  void ran(const OpCall& call) override {
    const double us = us_of(end_ - begin_);
    steps_.back().ops.push_back({std::string(call.name), work_of(call), us});
    steps_.back().sum_us += us;
  }
  double sum_us(std::size_t step) const { return steps_[step].sum_us; }
  const std::vector<OpSample>& ops(std::size_t step) const { return steps_[step].ops; }

 private:
  struct Step {
    std::vector<OpSample> ops;
    double sum_us = 0;
  };
  std::vector<Step> steps_;
  fsdp::Nanos begin_ = 0, end_ = 0;
};

struct Shape {
  const char* model;
  const char* set;
  int batch, seq;
  bool quick;
};
constexpr Shape kShapes[] = {
    {"llama", "layers=2,dim=64,heads=4,ffn=176,vocab=512", 1, 32, true},
    {"llama", "layers=2,dim=128,heads=4,ffn=352,vocab=512", 1, 64, true},
    {"llama", "layers=6,dim=192,heads=6,ffn=512,vocab=1024", 1, 48, true},
    {"llama", "layers=2,dim=256,heads=4,ffn=688,vocab=1024", 1, 128, true},
    {"llama", "layers=4,dim=320,heads=5,ffn=864,vocab=1024", 1, 64, true},
    {"llama", "layers=2,dim=256,heads=8,ffn=688,vocab=2048", 2, 256, false},
    {"llama", "layers=2,dim=512,heads=8,ffn=1376,vocab=4096", 1, 128, true},
    {"llama", "layers=1,dim=768,heads=12,ffn=2048,vocab=4096", 2, 128, false},
    {"gpt-neox", "layers=2,dim=128,heads=4,vocab=512", 2, 64, true},
    {"gpt-neox", "layers=2,dim=256,heads=4,vocab=2048", 1, 128, true},
    {"gpt-neox", "layers=1,dim=512,heads=8,vocab=4096", 2, 128, false},
};

CaseSettings case_of(const Shape& s) {
  CaseSettings c;
  apply_setting(c, "model", s.model);
  apply_setting(c, "set", s.set);
  c.batch = s.batch, c.seq = s.seq;
  return c;
}

// One thread for each rank, on shared memory, as the processes of a trial.
template <typename Rank>
void on_ranks(int world, Rank rank_main) {
  const int memory = fsdp::create_shared_memory(world, kSharedMemory);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back([&, rank] { rank_main(rank, memory); });
  for (std::thread& t : ranks) t.join();
}

RankJob job_of(const Shape& shape, int world, int rank, int memory) {
  RankJob job;
  job.settings = case_of(shape);
  job.settings.world = world;
  job.rank = rank, job.world = world, job.shared_memory_fd = memory;
  return job;
}

// Operators of the fastest step, on its slowest rank: what the others wait for.
std::vector<OpSample> ops_of(const Shape& shape, const Hardware& hardware, int steps) {
  std::vector<OpTimes> times(kWorld);
  on_ranks(kWorld, [&](int rank, int memory) {
    RankProgress progress;
    RankWorld world(job_of(shape, kWorld, rank, memory), progress);
    OpTimes& mine = times[static_cast<std::size_t>(rank)];
    world.step();
    for (int i = 0; i < steps; ++i) {
      mine.begin_step();
      const OpObserverScope scope(mine);
      world.step();
    }
    world.barrier();
  });
  const std::vector<OpSample>* fastest = nullptr;
  double least = 0;
  for (std::size_t step = 0; step < static_cast<std::size_t>(steps); ++step) {
    const OpTimes& slowest = *std::max_element(
        times.begin(), times.end(), [&](const auto& a, const auto& b) { return a.sum_us(step) < b.sum_us(step); });
    if (fastest && slowest.sum_us(step) >= least) continue;
    least = slowest.sum_us(step);
    fastest = &slowest.ops(step);
  }
  fsdp::Count parameters = 0;
  for (const fsdp::UnitSpec& unit : plan_of(case_of(shape)).units) parameters += unit.numel;
  std::vector<OpSample> samples = *fastest;
  for (OpSample& s : samples) s.cold = cold_share(hardware, step_bytes(parameters, kWorld));
  return samples;
}

// What a step spends around its operators, for each of them: one rank's fastest step without an observer, less the
// operators of the fastest step with one. Of a small model, whose steps are over before another program takes its turn.
double overhead_us(const Shape& shape, int steps) {
  double whole = 1e30, inside = 1e30;
  std::size_t operators = 1;
  on_ranks(1, [&](int rank, int memory) {
    RankProgress progress;
    RankWorld world(job_of(shape, 1, rank, memory), progress);
    world.step();
    for (int i = 0; i < steps; ++i) {
      const fsdp::Nanos begin = fsdp::steady_now();
      world.step();
      whole = std::min(whole, us_of(fsdp::steady_now() - begin));
      OpTimes times;
      times.begin_step();
      const OpObserverScope scope(times);
      world.step();
      inside = std::min(inside, times.sum_us(0));
      operators = std::max(operators, times.ops(0).size());
    }
  });
  return std::max(0.0, whole - inside) / static_cast<double>(operators);
}

// Fastest of several calls of each size, enqueued and waited for.
std::vector<CollectiveSample> collective_samples(fsdp::CollectiveKind kind, bool quick) {
  std::vector<CollectiveSample> out;
  const int repetitions = quick ? 20 : 60;
  on_ranks(kWorld, [&](int rank, int fd) {
    const auto memory = fsdp::attach_shared_memory(fd, rank, kWorld);
    fsdp::HostTransports transports;
    transports.world = fsdp::attach_local_transport(memory, rank, kWorld, kTimeout, 0);
    fsdp::HostDevice device(fsdp::HostDevice::Options{rank, kTimeout, true});
    fsdp::HostCollectives collectives(device, std::move(transports));
    for (fsdp::Count count = 1 << 10; count <= (quick ? 1 << 20 : 1 << 22); count *= 4) {
      fsdp::CollectiveCall call;
      call.kind = kind;
      call.count = count;
      const bool gathers = kind == fsdp::CollectiveKind::kAllGather;
      const fsdp::Bytes part = count * 4, full = part * kWorld;
      void* in = collectives.allocate(gathers ? part : full);
      void* to = collectives.allocate(gathers ? full : part);
      call.in = in, call.out = to;
      fsdp::Nanos best = INT64_MAX;
      for (int i = 0; i < repetitions; ++i) {
        collectives.exchange(0);
        const fsdp::Nanos begin = fsdp::steady_now();
        collectives.enqueue(gathers ? fsdp::Lane::kAllGather : fsdp::Lane::kReduceScatter, call);
        device.synchronize(device.record(gathers ? fsdp::Lane::kAllGather : fsdp::Lane::kReduceScatter));
        best = std::min(best, fsdp::steady_now() - begin);
      }
      if (rank == 0) out.push_back({kWorld, static_cast<double>(full) * (kWorld - 1) / kWorld, us_of(best)});
      collectives.exchange(0);
      collectives.release(in);
      collectives.release(to);
    }
  });
  return out;
}

// Two medians of collectives on an emulated wire. `late_us` says how much longer than asked a collective holds its
// lane; it is measured on several that follow each other. `wake_us` says how much later than that the thread which
// waits for a single collective runs again.
struct WireTimes {
  double late_us = 0, wake_us = 0;
};
WireTimes wire_times(bool quick) {
  constexpr fsdp::Nanos kLatency = 1'000'000;
  constexpr int kQueue = 5;
  std::vector<double> late, one_late;
  on_ranks(kWorld, [&](int rank, int fd) {
    const auto memory = fsdp::attach_shared_memory(fd, rank, kWorld);
    fsdp::HostTransports transports;
    transports.world = std::make_unique<fsdp::EmulatedWire>(
        fsdp::attach_local_transport(memory, rank, kWorld, kTimeout, 0), fsdp::Wire{kLatency, 1e12});
    fsdp::HostDevice device(fsdp::HostDevice::Options{rank, kTimeout, true});
    fsdp::HostCollectives collectives(device, std::move(transports));
    fsdp::CollectiveCall call;
    call.kind = fsdp::CollectiveKind::kAllGather;
    call.count = 256;
    void* in = collectives.allocate(call.count * 4);
    void* to = collectives.allocate(call.count * 4 * kWorld);
    call.in = in, call.out = to;
    const auto us_beyond = [&](int calls) {
      collectives.exchange(0);
      const fsdp::Nanos begin = fsdp::steady_now();
      for (int i = 0; i < calls; ++i) collectives.enqueue(fsdp::Lane::kAllGather, call);
      device.synchronize(device.record(fsdp::Lane::kAllGather));
      return us_of(fsdp::steady_now() - begin - calls * kLatency);
    };
    for (int i = 0; i < (quick ? 20 : 60); ++i) {
      const double one = us_beyond(1), queue = us_beyond(kQueue);
      if (rank != 0) continue;
      one_late.push_back(one);
      late.push_back((queue - one) / (kQueue - 1));
    }
    collectives.exchange(0);
    collectives.release(in);
    collectives.release(to);
  });
  WireTimes times;
  times.late_us = std::max(0.0, median(late));
  times.wake_us = std::max(0.0, median(one_late) - times.late_us);
  return times;
}

// As the kernel says it ("32768K"), which knows what a virtual machine was given; 0 where there is none.
double last_cache_mib() {
  std::ifstream in("/sys/devices/system/cpu/cpu0/cache/index3/size");
  double kib = 0;
  in >> kib;
  return kib / 1024;
}

}  // namespace

Hardware calibrate_host(bool quick, const std::function<void(const std::string&)>& say) {
  // An arena of a thread's own ends at 64 MiB and is given back to the system; a rank's process has the main one.
  mallopt(M_ARENA_MAX, 1);
  Hardware h;
  const auto environment = host_environment();
  const auto cpu = environment.find("cpu");
  h.name = "calibrated";
  h.source = "shardscope calibrate on " + (cpu == environment.end() ? "this machine" : cpu->second);
  h.gpu = false;
  h.cache_mib = last_cache_mib();
  std::vector<OpSample> samples;
  for (const Shape& shape : kShapes) {
    if (quick && !shape.quick) continue;
    say(std::string("operators of ") + shape.model + " " + shape.set);
    const std::vector<OpSample> these = ops_of(shape, h, quick ? 10 : 40);
    samples.insert(samples.end(), these.begin(), these.end());
  }
  h.ops = fit_ops(samples);
  say("what surrounds operators");
  const double overhead = overhead_us(kShapes[1], quick ? 30 : 200);
  for (auto& [name, cost] : h.ops) cost.t0_us += overhead;
  say("collectives");
  h.all_gather = {fit_curve(collective_samples(fsdp::CollectiveKind::kAllGather, quick))};
  h.reduce_scatter = {fit_curve(collective_samples(fsdp::CollectiveKind::kReduceScatter, quick))};
  say("wake-ups");
  const WireTimes wire = wire_times(quick);
  h.wake_us = wire.wake_us;
  h.wire_late_us = wire.late_us;
  return h;
}

}  // namespace harness
