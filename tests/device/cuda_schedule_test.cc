// The scheduler on the CUDA device: real buffers, kernels and collectives over the fake, whose clocks prove that every
// access is ordered, whatever order streams take. And the verb log: the same on every device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/comm/local_transport.h"
#include "fsdp/comm/nccl_collectives.h"
#include "fsdp/core/errors.h"
#include "fsdp/schedule/communicators.h"
#include "fsdp/schedule/ordering_checker.h"
#include "fsdp/schedule/scripted_step.h"
#include "tests/testing/fake_cuda.h"

namespace fsdp {
namespace {

using testing::FakeCuda;
using ::testing::IsEmpty;

constexpr Nanos kTimeout = 60'000'000'000;
constexpr Count kShard = 24;  // elements

struct Plan {
  std::vector<UnitTraits> traits;
  SchedulerOptions options;
  MicroBatches micro_batches;
  std::vector<Count> shards;  // elements of a rank's part of each unit

  static Plan random(std::uint32_t seed) {
    std::mt19937 r(seed);
    const auto pick = [&r](int n) { return static_cast<int>(r() % static_cast<unsigned>(n)); };
    Plan p;
    const int units = 2 + pick(5);
    for (int u = 0; u < units; ++u) {
      UnitTraits t;
      t.name = std::to_string(u);
      t.reshard_after_forward = u > 0 && pick(5) > 0;
      t.casts = pick(3) == 0;
      p.shards.push_back(kShard * (1 + pick(2)));
      t.unsharded_bytes = p.shards.back() * 8;
      p.traits.push_back(t);
    }
    p.options.forward_prefetch = pick(3);
    p.options.backward_prefetch = static_cast<BackwardPrefetch>(pick(3));
    p.options.backward_depth = 1 + pick(2);
    p.options.reduce_scatter_slots = 1 + pick(2);
    p.options.own_reduce_scatter_communicator = pick(2) == 0;
    p.options.demand_waits_for_compute = pick(2) == 0;
    p.options.max_inflight =
        auto_gate(p.options.forward_prefetch, p.options.backward_prefetch, p.options.backward_depth);
    p.micro_batches = {1 + pick(2), pick(2) == 0};
    return p;
  }
};

// Units whose numbers are known: after k optimizer steps each element of rank r's part of unit u is u + 10 r + k.
class CudaUnits final : public UnitMemory {
 public:
  CudaUnits(FakeCuda& fake, int rank, CudaDevice& device, NcclCollectives& comm, const Plan& plan)
      : fake_(fake), rank_(rank), device_(device), comm_(comm), plan_(plan), units_(plan.traits.size()) {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      units_[u].shard = floats(plan.shards[u]);
      for (Count i = 0; i < plan.shards[u]; ++i) units_[u].shard[i] = value(static_cast<UnitId>(u), rank, 0);
      units_[u].produced = floats(full(static_cast<UnitId>(u)));
    }
  }
  ~CudaUnits() override {
    for (Unit& u : units_)
      for (float* p : {u.shard, u.produced, u.reduce, u.gradient, u.accumulated}) comm_.release(p);
    for (Unit& u : units_)
      if (u.full != nullptr) comm_.give(u.full);
  }

  void acquire_unsharded(UnitId u) override {
    at(u).full = static_cast<float*>(comm_.take(full(u) * 4, Lane::kAllGather));
  }
  void release_unsharded(UnitId u) override { comm_.give(std::exchange(at(u).full, nullptr)); }
  void cast_shard(UnitId u) override {
    float* const from = at(u).shard;
    float* const to = at(u).full + rank_ * shard(u);
    kernel(Lane::kAllGather, "cast", {{from, shard(u) * 4}}, {{to, shard(u) * 4}},
           [=, n = shard(u)] { std::copy_n(from, n, to); });
  }
  void acquire_reduce_input(UnitId u) override { at(u).reduce = floats(full(u)); }
  void release_reduce_input(UnitId u) override { comm_.release(std::exchange(at(u).reduce, nullptr)); }
  void acquire_gradient(UnitId u) override { at(u).gradient = floats(shard(u)); }
  void release_gradient(UnitId u) override {
    comm_.release(std::exchange(at(u).gradient, nullptr));
    at(u).summed = false;
  }
  void pack_gradients(UnitId u) override {
    float* const from = at(u).produced;
    float* const kept = std::exchange(at(u).accumulated, nullptr);
    float* const to = at(u).reduce;
    std::vector<FakeCuda::Range> reads{{from, full(u) * 4}};
    if (kept != nullptr) reads.push_back({kept, full(u) * 4});
    kernel(Lane::kCompute, "pack", reads, {{to, full(u) * 4}}, [=, n = full(u)] {
      for (Count i = 0; i < n; ++i) to[i] = from[i] + (kept != nullptr ? kept[i] : 0.0f);
    });
    comm_.release(kept);
  }
  void accumulate_unsharded(UnitId u) override {
    const bool add = at(u).accumulated != nullptr;
    if (!add) at(u).accumulated = floats(full(u));
    float* const from = at(u).produced;
    float* const to = at(u).accumulated;
    kernel(Lane::kCompute, "accumulate", {{from, full(u) * 4}}, {{to, full(u) * 4}}, [=, n = full(u)] {
      for (Count i = 0; i < n; ++i) to[i] = from[i] + (add ? to[i] : 0.0f);
    });
  }
  CollectiveCall all_gather_call(UnitId u) override {
    CollectiveCall c;
    c.kind = CollectiveKind::kAllGather, c.unit = u, c.count = shard(u);
    c.out = at(u).full;
    c.in = plan_.traits[static_cast<std::size_t>(u)].casts ? at(u).full + rank_ * shard(u) : at(u).shard;
    return c;
  }
  CollectiveCall reduce_call(UnitId u) override {
    CollectiveCall c;
    c.kind = CollectiveKind::kReduceScatter, c.unit = u, c.count = shard(u);
    c.in = at(u).reduce, c.out = at(u).gradient;
    c.accumulate = std::exchange(at(u).summed, true);
    return c;
  }

  // Forward and backward look at every element; backward makes gradients of 1.
  void compute(Pass pass, UnitId u, int step) {
    const float* const all = at(u).full;
    float* const produced = at(u).produced;
    std::vector<FakeCuda::Range> writes;
    if (pass == Pass::kBackward) writes.push_back({produced, full(u) * 4});
    kernel(Lane::kCompute, "compute", {{all, full(u) * 4}}, writes, [this, all, produced, pass, u, step] {
      for (Count i = 0; i < full(u); ++i) {
        if (all[i] != value(u, static_cast<int>(i / shard(u)), step)) ++wrong_;
        if (pass == Pass::kBackward) produced[i] = 1.0f;
      }
    });
  }
  // Every rank has put in 1 for each micro-batch.
  void optimize(int step, int micro_batches) {
    const auto sum = static_cast<float>(comm_.world() * micro_batches);
    for (UnitId u = 0; u < static_cast<UnitId>(units_.size()); ++u) {
      float* const shard_of = at(u).shard;
      const float* const gradient = at(u).gradient;
      kernel(Lane::kCompute, "optimizer", {{gradient, shard(u) * 4}, {shard_of, shard(u) * 4}},
             {{shard_of, shard(u) * 4}}, [this, shard_of, gradient, u, step, sum] {
               for (Count i = 0; i < shard(u); ++i) {
                 if (gradient[i] != sum) ++wrong_;
                 shard_of[i] = value(u, rank_, step + 1);
               }
             });
    }
  }
  int wrong() const { return wrong_; }

 private:
  struct Unit {
    float *shard = nullptr, *full = nullptr, *produced = nullptr, *reduce = nullptr, *gradient = nullptr,
          *accumulated = nullptr;
    bool summed = false;
  };
  static float value(UnitId u, int rank, int step) { return static_cast<float>(100 * u + 10 * rank + step); }
  Unit& at(UnitId u) { return units_[static_cast<std::size_t>(u)]; }
  Count shard(UnitId u) const { return plan_.shards[static_cast<std::size_t>(u)]; }
  Count full(UnitId u) const { return shard(u) * comm_.world(); }
  float* floats(Count n) { return static_cast<float*>(comm_.allocate(n * 4)); }
  void kernel(Lane lane, const char* what, const std::vector<FakeCuda::Range>& reads,
              const std::vector<FakeCuda::Range>& writes, std::function<void()> work) {
    fake_.enqueue(rank_, device_.stream(lane), what, reads, writes, std::move(work));
  }

  FakeCuda& fake_;
  const int rank_;
  CudaDevice& device_;
  NcclCollectives& comm_;
  const Plan& plan_;
  std::vector<Unit> units_;
  int wrong_ = 0;
};

struct Outcome {
  VerbLog log;
  int wrong = 0;
  std::string error;
};

// Three steps; the log of the last one.
Outcome run_rank(FakeCuda& fake, const std::shared_ptr<ThreadBoard>& board, int rank, const Plan& plan) {
  Outcome out;
  try {
    CudaDevice device(fake.runtime(rank), {.rank = rank, .timeout = kTimeout});
    NcclCollectives comm(
        device, fake.nccl(rank), make_local_transport(board, rank, kTimeout),
        {.communicators = communicators_of({.world = true}, plan.options.own_reduce_scatter_communicator),
         .timeout = kTimeout});
    CudaUnits units(fake, rank, device, comm, plan);
    Scheduler scheduler(plan.traits, plan.options, device, comm, units, nullptr);
    const Script script = sequence_script(static_cast<int>(plan.traits.size()));
    for (int step = 0; step < 3; ++step) {
      out.log.clear();
      scheduler.set_log(&out.log);
      run_scripted_step(
          scheduler, device, step, script,
          [&](Pass p, UnitId u) {
            if (p == Pass::kOptimizer)
              units.optimize(step, plan.micro_batches.count);
            else
              units.compute(p, u, step);
          },
          plan.micro_batches);
    }
    device.drain();
    out.wrong = units.wrong();
  } catch (const std::exception& e) {
    out.error = e.what();
  }
  return out;
}

std::vector<Outcome> run_cuda(FakeCuda& fake, int world, const Plan& plan) {
  const auto board = make_thread_board(world);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
  std::vector<std::thread> ranks;
  for (int r = 0; r < world; ++r)
    ranks.emplace_back([&, r] { outcomes[static_cast<std::size_t>(r)] = run_rank(fake, board, r, plan); });
  for (auto& t : ranks) t.join();
  return outcomes;
}

TEST(CudaSchedule, EveryAccessOfARandomPlanIsOrderedAndEveryNumberRight) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    const Plan plan = Plan::random(seed);
    FakeCuda fake(2, seed);
    for (const Outcome& o : run_cuda(fake, 2, plan)) {
      EXPECT_EQ(o.error, "") << "seed " << seed;
      EXPECT_EQ(o.wrong, 0) << "seed " << seed;
      EXPECT_FALSE(find_ordering_fault(o.log)) << "seed " << seed;
    }
    ASSERT_THAT(fake.faults(), IsEmpty()) << "seed " << seed;
    EXPECT_EQ(fake.live(), FakeCuda::Live{}) << "seed " << seed;
  }
}

// The same units without bytes, for devices whose buffers are of no interest here.
VerbLog log_of(Device& device, Collectives& comm, const Plan& plan) {
  std::vector<UnitBytes> bytes(plan.traits.size());
  MemoryMeter meter;
  CountingUnitMemory memory(bytes, std::vector<bool>(bytes.size(), false), meter);
  Scheduler scheduler(plan.traits, plan.options, device, comm, memory, &meter);
  VerbLog log;
  const Script script = sequence_script(static_cast<int>(plan.traits.size()));
  for (int step = 0; step < 3; ++step) {
    log.clear();
    scheduler.set_log(&log);
    run_scripted_step(scheduler, device, step, script, {}, plan.micro_batches);
  }
  return log;
}

void expect_same(const VerbLog& a, const VerbLog& b, const char* device, std::uint32_t seed) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  EXPECT_TRUE(x == a.end() && y == b.end())
      << "seed " << seed << ", entry " << x - a.begin() << ": cuda " << (x == a.end() ? "ends" : to_string(*x)) << ", "
      << device << " " << (y == b.end() ? "ends" : to_string(*y));
}

TEST(CudaSchedule, TheVerbLogIsThatOfTheHostAndOfTheVirtualWorld) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    const Plan plan = Plan::random(seed);
    FakeCuda fake(1, seed);
    const VerbLog cuda = run_cuda(fake, 1, plan).front().log;
    ASSERT_FALSE(cuda.empty());

    const bool own = plan.options.own_reduce_scatter_communicator;
    HostDevice host({.timeout = kTimeout, .shared_channel = !own});
    HostTransports transports;
    transports.world = make_local_transport(make_thread_board(1), 0, kTimeout);
    if (own)
      transports.others.emplace_back(Communicator::kReduceScatter,
                                     make_local_transport(make_thread_board(1), 0, kTimeout));
    HostCollectives host_comm(host, std::move(transports));
    expect_same(cuda, log_of(host, host_comm, plan), "host", seed);

    VirtualDevice virtual_device;
    VirtualCollectives virtual_comm(virtual_device, 1, [](const CollectiveCall&) { return Nanos{3}; });
    expect_same(cuda, log_of(virtual_device, virtual_comm, plan), "virtual", seed);
  }
}

}  // namespace
}  // namespace fsdp
