// Whole training steps on the CUDA device and NCCL over the fake GPU: the model computes on the host, in memory of the
// fake; everything that the runtime moves goes over its streams. Losses are those of the host world, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "fsdp/comm/nccl_collectives.h"
#include "fsdp/module/tensor_device.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/workload/describe.h"
#include "harness/workload/trainer.h"
#include "tests/module/ranks.h"
#include "tests/testing/fake_cuda.h"

namespace harness {
namespace {

using fsdp::testing::FakeCuda;
using ::testing::IsEmpty;

constexpr fsdp::Nanos kTimeout = 60'000'000'000;

// A CUDA device whose compute lane is the host: what it waits for, the host waits for.
class HostComputes final : public fsdp::Device {
 public:
  explicit HostComputes(fsdp::CudaDevice& inner) : inner_(inner) {}
  fsdp::Nanos now() const override { return inner_.now(); }
  fsdp::Event record(fsdp::Lane lane) override { return inner_.record(lane); }
  void wait(fsdp::Lane lane, fsdp::Event event, fsdp::SpanKind reason) override {
    inner_.wait(lane, event, reason);
    if (lane == fsdp::Lane::kCompute) inner_.synchronize(event);
  }
  void synchronize(fsdp::Event event) override { inner_.synchronize(event); }
  void compute_context(fsdp::WorkTag tag) override { inner_.compute_context(tag); }
  void host_context() override { inner_.host_context(); }
  void begin_step(int step) override { inner_.begin_step(step); }
  void end_step() override { inner_.end_step(); }
  void set_recording(bool on) override { inner_.set_recording(on); }
  std::vector<fsdp::Span> take_spans() override { return inner_.take_spans(); }

 private:
  fsdp::CudaDevice& inner_;
};

class FakeTensors final : public fsdp::TensorDevice {
 public:
  explicit FakeTensors(fsdp::NcclCollectives& comm) : comm_(comm) {}
  c10::Device place() const override { return at::kCPU; }
  c10::Stream stream(fsdp::Lane lane) const override {
    if (lane == fsdp::Lane::kAllGather) ++casts;
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(at::kCPU));
  }
  c10::DataPtr take(fsdp::Bytes n, fsdp::Lane writer) override {
    ++taken;
    void* const p = comm_.take(n, writer);
    return {p, new Block{&comm_, p},
            [](void* b) {
              const std::unique_ptr<Block> block(static_cast<Block*>(b));
              block->comm->give(block->memory);
            },
            at::kCPU};
  }
  int taken = 0;
  mutable int casts = 0;

 private:
  struct Block {
    fsdp::NcclCollectives* comm;
    void* memory;
  };
  fsdp::NcclCollectives& comm_;
};

struct Job {
  int world = 2;
  std::string wrap = "block";
  fsdp::UnitOptions unit;
  TrainerSettings settings;
};
Job job() {
  Job j;
  j.settings.model.layers = 2, j.settings.model.dim = 24, j.settings.model.heads = 2, j.settings.model.kv_heads = 1;
  j.settings.model.ffn = 35, j.settings.model.vocab = 67, j.settings.model.seq = 9;
  j.settings.seed = 7;
  return j;
}

struct Numbers {
  std::vector<double> numbers;  // loss and squared norm of each step, by rank
  fsdp::Bytes peak = 0;
  int taken = 0, casts = 0;
};

Numbers train(const Job& j, fsdp::Device& device, fsdp::Collectives& collectives, fsdp::TensorDevice* tensors,
              const fsdp::UnitPlan& plan) {
  fsdp::MemoryMeter meter;
  TrainerSettings settings = j.settings;
  settings.tensors = tensors;
  Numbers run;
  Trainer trainer(settings, plan, device, collectives, meter);
  for (int s = 0; s < 4; ++s) {
    const StepResult r = trainer.step();
    run.numbers.push_back(r.loss), run.numbers.push_back(r.gradient_square_sum);
  }
  run.peak = meter.peak().total;
  return run;
}

std::vector<Numbers> on_host(const Job& j, const fsdp::UnitPlan& plan) {
  std::vector<Numbers> runs(static_cast<std::size_t>(j.world));
  fsdp::run_ranks(j.world, fsdp::groups_of(plan, j.world), [&](fsdp::RankWorld& w) {
    runs[static_cast<std::size_t>(w.rank)] = train(j, w.device, w.collectives, nullptr, plan);
  });
  return runs;
}

std::vector<Numbers> on_cuda(const Job& j, const fsdp::UnitPlan& plan, FakeCuda& fake) {
  const auto communicators = fsdp::communicators_of(fsdp::groups_of(plan, j.world), false);
  const auto board = fsdp::make_thread_board(j.world);
  std::vector<Numbers> runs(static_cast<std::size_t>(j.world));
  std::vector<std::string> errors(runs.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < j.world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      try {
        fsdp::CudaDevice device(fake.runtime(rank), {.rank = rank, .timeout = kTimeout});
        fsdp::NcclCollectives comm(device, fake.nccl(rank), fsdp::make_local_transport(board, rank, kTimeout),
                                   {.communicators = communicators, .timeout = kTimeout});
        FakeTensors tensors(comm);
        HostComputes computing(device);
        try {
          runs[r] = train(j, computing, comm, &tensors, plan);
        } catch (...) {
          comm.cancel();
          throw;
        }
        runs[r].taken = tensors.taken, runs[r].casts = tensors.casts;
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  }
  for (auto& t : threads) t.join();
  std::erase(errors, "");
  EXPECT_THAT(errors, IsEmpty());
  EXPECT_THAT(fake.faults(), IsEmpty());
  EXPECT_EQ(fake.live(), FakeCuda::Live{});
  return runs;
}

struct Variant {
  const char* name;
  void (*change)(Job&);
  bool casts = false;
};

class CudaTraining : public ::testing::TestWithParam<Variant> {};

TEST_P(CudaTraining, NumbersAndBytesAreThoseOfTheHostWorld) {
  Job j = job();
  GetParam().change(j);
  const fsdp::UnitPlan plan = fsdp::make_unit_plan(describe_model(j.settings.model), fsdp::parse_wrap(j.wrap), j.unit);
  FakeCuda fake(j.world);
  const std::vector<Numbers> host = on_host(j, plan), cuda = on_cuda(j, plan, fake);
  for (std::size_t r = 0; r < host.size(); ++r) {
    EXPECT_EQ(cuda[r].numbers, host[r].numbers) << "rank " << r;
    EXPECT_EQ(cuda[r].peak, host[r].peak) << "rank " << r;
    EXPECT_EQ(cuda[r].taken > 0, j.unit.strategy != fsdp::Strategy::kNoShard);
    EXPECT_EQ(cuda[r].casts > 0, GetParam().casts);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaTraining,
    ::testing::Values(
        Variant{"FullShard", [](Job&) {}}, Variant{"Root", [](Job& j) { j.wrap = "root"; }},
        Variant{"ThreeRanks", [](Job& j) { j.world = 3; }}, Variant{"Clipped", [](Job& j) { j.settings.clip = 0.5; }},
        Variant{"MicroBatches", [](Job& j) { j.settings.accumulate = 2, j.settings.sync_every = true; }},
        Variant{"Checkpointed", [](Job& j) { j.settings.checkpoint = true; }},
        Variant{"NoShard", [](Job& j) { j.unit.strategy = fsdp::Strategy::kNoShard; }},
        Variant{"ShardGradOp", [](Job& j) { j.unit.strategy = fsdp::Strategy::kShardGradOp; }},
        Variant{"Hybrid",
                [](Job& j) { j.world = 4, j.unit.strategy = fsdp::Strategy::kHybridShard, j.unit.group = 2; }},
        Variant{"PerParameter", [](Job& j) { j.unit.layout = fsdp::Layout::kPerParameter; }},
        Variant{"HalfParameters", [](Job& j) { j.unit.param_dtype = fsdp::Dtype::kBFloat16; }, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace harness
