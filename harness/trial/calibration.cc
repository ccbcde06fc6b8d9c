#include "harness/trial/calibration.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/comm/wire.h"
#include "fsdp/core/clock.h"
#include "fsdp/device/host/host_device.h"
#include "harness/cost/fit_costs.h"
#include "harness/trial/environment.h"
#include "harness/trial/op_observer.h"
#include "harness/trial/rank_world.h"

namespace harness {
namespace {

constexpr int kWorld = 2;
constexpr fsdp::Bytes kSharedMemory = fsdp::Bytes{2} << 30;
constexpr fsdp::Nanos kTimeout = 120'000'000'000;

// Of this thread: what other programs take from it does not count.
double processor_us() {
  rusage u{};
  getrusage(RUSAGE_THREAD, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
         static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

double us_of(fsdp::Nanos ns) { return static_cast<double>(ns) * 1e-3; }

// Times the operators of one step; of several steps the least time of each counts: other work on the machine only adds.
class OpTimes final : public OpObserver {
 public:
  void begin_step() { at_ = 0; }
  void begins() override { begin_ = fsdp::steady_now(); }
  void ended() override { end_ = fsdp::steady_now(); }
  void ran(const OpCall& call) override {
    const double us = us_of(end_ - begin_);
    if (at_ == samples_.size()) {
      samples_.push_back({std::string(call.name), work_of(call), us});
    } else {
      samples_[at_].us = std::min(samples_[at_].us, us);
    }
    ++at_;
  }
  const std::vector<OpSample>& samples() const { return samples_; }

 private:
  std::vector<OpSample> samples_;
  std::size_t at_ = 0;
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
    {"llama", "layers=2,dim=256,heads=4,ffn=688,vocab=1024", 1, 128, true},
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

std::vector<OpSample> ops_of(const Shape& shape, int world, int steps, double& overhead_us) {
  std::vector<OpSample> samples;
  on_ranks(world, [&](int rank, int memory) {
    RankJob job;
    job.settings = case_of(shape);
    job.settings.world = world;
    job.rank = rank, job.world = world, job.shared_memory_fd = memory;
    RankProgress progress;
    RankWorld ranks_world(job, progress);
    OpTimes times;
    ranks_world.step();
    double best = 1e30;
    for (int i = 0; i < steps; ++i) {
      times.begin_step();
      const OpObserverScope scope(times);
      const double begin = processor_us();
      ranks_world.step();
      best = std::min(best, processor_us() - begin);
    }
    ranks_world.barrier();
    if (rank != 0) return;
    samples = times.samples();
    double inside = 0;
    for (const OpSample& s : samples) inside += s.us;
    overhead_us = std::max(0.0, best - inside) / static_cast<double>(std::max<std::size_t>(1, samples.size()));
  });
  return samples;
}

// Fastest of several calls of each size, enqueued and waited for.
std::vector<CollectiveSample> collective_samples(fsdp::CollectiveKind kind, bool quick) {
  std::vector<CollectiveSample> out;
  const int repetitions = quick ? 20 : 60;
  on_ranks(kWorld, [&](int rank, int fd) {
    const auto memory = fsdp::attach_shared_memory(fd, rank, kWorld);
    fsdp::HostTransports transports;
    transports.shard = fsdp::attach_local_transport(memory, rank, kWorld, kTimeout, 0);
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

// From the end of a collective on an emulated wire of 2 ms to the thread that waited for it; the median.
double wake_up_us() {
  constexpr fsdp::Nanos kLatency = 2'000'000;
  std::vector<double> late;
  on_ranks(kWorld, [&](int rank, int fd) {
    const auto memory = fsdp::attach_shared_memory(fd, rank, kWorld);
    fsdp::HostTransports transports;
    transports.shard = std::make_unique<fsdp::EmulatedWire>(
        fsdp::attach_local_transport(memory, rank, kWorld, kTimeout, 0), fsdp::Wire{kLatency, 1'000'000'000'000});
    fsdp::HostDevice device(fsdp::HostDevice::Options{rank, kTimeout, true});
    fsdp::HostCollectives collectives(device, std::move(transports));
    fsdp::CollectiveCall call;
    call.kind = fsdp::CollectiveKind::kAllGather;
    call.count = 256;
    void* in = collectives.allocate(call.count * 4);
    void* to = collectives.allocate(call.count * 4 * kWorld);
    call.in = in, call.out = to;
    for (int i = 0; i < 40; ++i) {
      collectives.exchange(0);
      const fsdp::Nanos begin = fsdp::steady_now();
      collectives.enqueue(fsdp::Lane::kAllGather, call);
      device.synchronize(device.record(fsdp::Lane::kAllGather));
      if (rank == 0) late.push_back(us_of(fsdp::steady_now() - begin - kLatency));
    }
    collectives.exchange(0);
    collectives.release(in);
    collectives.release(to);
  });
  std::sort(late.begin(), late.end());
  return std::max(0.0, late[late.size() / 2]);
}

}  // namespace

Hardware calibrate_host(bool quick, const std::function<void(const std::string&)>& say) {
  Hardware h;
  const auto environment = host_environment();
  const auto cpu = environment.find("cpu");
  h.name = "calibrated";
  h.source = "shardscope calibrate on " + (cpu == environment.end() ? "this machine" : cpu->second);
  h.gpu = false;
  std::vector<OpSample> samples;
  std::vector<double> overheads;
  for (const Shape& shape : kShapes) {
    if (quick && !shape.quick) continue;
    say(std::string("operators of ") + shape.model + " " + shape.set);
    double overhead = 0;
    ops_of(shape, 1, quick ? 5 : 15, overhead);
    overheads.push_back(overhead);
    double ignored = 0;
    const std::vector<OpSample> these = ops_of(shape, kWorld, quick ? 5 : 15, ignored);
    samples.insert(samples.end(), these.begin(), these.end());
  }
  h.ops = fit_ops(samples);
  std::sort(overheads.begin(), overheads.end());
  const double overhead = overheads[overheads.size() / 2];
  for (auto& [name, cost] : h.ops) cost.t0_us += overhead;
  say("collectives");
  h.all_gather = {fit_curve(collective_samples(fsdp::CollectiveKind::kAllGather, quick))};
  h.reduce_scatter = {fit_curve(collective_samples(fsdp::CollectiveKind::kReduceScatter, quick))};
  say("wake-ups");
  h.wake_us = wake_up_us();
  return h;
}

}  // namespace harness
