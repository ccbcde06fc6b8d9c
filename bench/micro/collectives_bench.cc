// Collectives in shared memory against bytes and ranks (threads), and the sum that reduce-scatter is made of. Bytes are
// those of the full buffer. More ranks than cores measure the scheduler of the operating system too.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "fsdp/comm/local_kernels.h"
#include "fsdp/comm/local_transport.h"

namespace {
using namespace fsdp;

constexpr Nanos kTimeout = 30'000'000'000;
constexpr std::uint64_t kGo = 1, kStop = 0;

// Rank 0 is the benchmark's thread; before each call it tells the others whether there is one.
class Ranks {
 public:
  Ranks(CollectiveKind kind, int world, Count count) : kind_(kind), world_(world), count_(count) {
    const auto board = make_thread_board(world);
    for (int r = 0; r < world; ++r) {
      transports_.push_back(make_local_transport(board, r, kTimeout));
      buffers_.push_back({alloc(r, kind == CollectiveKind::kAllGather ? count : count * world),
                          alloc(r, kind == CollectiveKind::kAllGather ? count * world : count)});
    }
    for (int r = 1; r < world; ++r) {
      threads_.emplace_back([this, r] {
        while (transports_[at(r)]->exchange(0)[0] == kGo) run(r);
      });
    }
  }
  ~Ranks() {
    transports_[0]->exchange(kStop);
    for (auto& t : threads_) t.join();
    for (int r = 0; r < world_; ++r) {
      transports_[at(r)]->release(buffers_[at(r)].in);
      transports_[at(r)]->release(buffers_[at(r)].out);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void step() {
    transports_[0]->exchange(kGo);
    run(0);
  }

 private:
  struct Buffers {
    float *in, *out;
  };
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  float* alloc(int rank, Count n) {
    auto* p = static_cast<float*>(transports_[at(rank)]->allocate(n * 4));
    std::fill(p, p + n, 1.0f);
    return p;
  }
  void run(int rank) {
    CollectiveCall call;
    call.kind = kind_;
    call.unit = 0;
    call.in = buffers_[at(rank)].in;
    call.out = buffers_[at(rank)].out;
    call.count = count_;
    transports_[at(rank)]->run(call);
  }

  const CollectiveKind kind_;
  const int world_;
  const Count count_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Buffers> buffers_;
  std::vector<std::thread> threads_;
};

void collective(benchmark::State& state, CollectiveKind kind) {
  const int world = static_cast<int>(state.range(0));
  const Count bytes = state.range(1);
  Ranks ranks(kind, world, bytes / 4 / world);
  for (auto _ : state) ranks.step();
  state.SetBytesProcessed(state.iterations() * bytes);
}
void all_gather(benchmark::State& state) { collective(state, CollectiveKind::kAllGather); }
void reduce_scatter(benchmark::State& state) { collective(state, CollectiveKind::kReduceScatter); }
BENCHMARK(all_gather)->ArgsProduct({{2, 4}, {4 << 10, 256 << 10, 16 << 20}})->UseRealTime();
BENCHMARK(reduce_scatter)->ArgsProduct({{2, 4}, {4 << 10, 256 << 10, 16 << 20}})->UseRealTime();

void sum_of_ranks(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  constexpr Count kCount = 1 << 20;
  std::vector<std::vector<float>> inputs(static_cast<std::size_t>(ranks), std::vector<float>(kCount, 0.5f));
  std::vector<const void*> in;
  for (const auto& v : inputs) in.push_back(v.data());
  std::vector<float> out(kCount);
  RankSum sum;
  sum.in = in.data(), sum.ranks = ranks, sum.out = out.data(), sum.count = kCount, sum.scale = 0.5f;
  for (auto _ : state) sum_ranks(sum);
  state.SetBytesProcessed(state.iterations() * kCount * 4 * (ranks + 1));
}
BENCHMARK(sum_of_ranks)->Arg(2)->Arg(8);

}  // namespace
