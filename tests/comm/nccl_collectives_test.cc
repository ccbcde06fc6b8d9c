#include "fsdp/comm/nccl_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "fsdp/comm/local_transport.h"
#include "fsdp/core/errors.h"
#include "tests/comm/transport_suite.h"
#include "tests/testing/fake_cuda.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using testing::FakeCuda;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::require;
using ::testing::ThrowsMessage;

struct Rank {
  FakeCuda& fake;
  int rank;
  CudaDevice& device;
  NcclCollectives& comm;
};

std::vector<std::string> run(FakeCuda& fake, int world, const NcclOptions& options,
                             const std::function<void(Rank)>& rank_main) {
  const auto board = make_thread_board(world);
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      try {
        CudaDevice device(fake.runtime(r), {.rank = r, .timeout = options.timeout});
        NcclCollectives comm(device, fake.nccl(r), make_local_transport(board, r, 2 * options.timeout), options);
        rank_main({fake, r, device, comm});
      } catch (const std::exception& e) {
        texts[static_cast<std::size_t>(r)] = "rank " + std::to_string(r) + ": " + e.what();
      }
    });
  }
  for (auto& t : threads) t.join();
  std::erase(texts, "");
  return texts;
}

// Numbers on the device, gone with the scope; after an error when lanes are idle.
class Floats {
 public:
  Floats(Rank& r, Count n, float value) : r_(r), n_(n), p_(static_cast<float*>(r.comm.allocate(n * 4))) {
    std::fill_n(p_, n, value);
  }
  ~Floats() {
    if (std::uncaught_exceptions() > before_) r_.comm.cancel();
    r_.comm.release(p_);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() { return p_; }
  float operator[](Count i) const { return p_[i]; }

 private:
  Rank& r_;
  const Count n_;
  const int before_ = std::uncaught_exceptions();
  float* const p_;
};

void finish(Rank& r, Lane lane) { r.device.synchronize(r.device.record(lane)); }

CollectiveCall call_of(CollectiveKind kind, Communicator c, float* in, float* out, Count n) {
  CollectiveCall call;
  call.kind = kind, call.communicator = c, call.unit = 4, call.in = in, call.out = out, call.count = n;
  return call;
}

TEST(NcclCollectives, GroupsAreSplitFromTheWorldAndNamedByRoleAndSize) {
  FakeCuda fake(4);
  static constexpr Communicator kShard{Communicator::kShard, 2}, kReplica{Communicator::kReplica, 2},
      kReduceScatter{Communicator::kReduceScatter, 2}, kWorld;
  const NcclOptions options{
      .communicators = {kShard, kReplica, kReduceScatter, Communicator::kReduceScatter}, .min_ctas = 4, .max_ctas = 16};
  EXPECT_THAT(
      run(fake, 4, options,
          [](Rank r) {
            const auto rank = static_cast<float>(r.rank);
            Floats in(r, 8, rank), full(r, 16, -1), sum(r, 8, rank), whole(r, 8, rank);
            r.comm.enqueue(Lane::kAllGather, call_of(CollectiveKind::kAllGather, kShard, in.data(), full.data(), 8));
            r.comm.enqueue(Lane::kAllReduce, call_of(CollectiveKind::kAllReduce, kReplica, sum.data(), sum.data(), 8));
            r.comm.enqueue(Lane::kAllReduce,
                           call_of(CollectiveKind::kAllReduce, kWorld, whole.data(), whole.data(), 8));
            finish(r, Lane::kAllGather), finish(r, Lane::kAllReduce);
            const float first = r.rank < 2 ? 0 : 2;
            require(full[0] == first && full[15] == first + 1, "consecutive ranks share");
            require(sum[7] == (r.rank % 2 == 0 ? 2.0f : 4.0f), "across groups: 0 and 2, 1 and 3");
            require(whole[3] == 6, "all");
            Floats part(r, 8, 0);
            r.comm.enqueue(Lane::kReduceScatter,
                           call_of(CollectiveKind::kReduceScatter, kReduceScatter, full.data(), part.data(), 8));
            finish(r, Lane::kReduceScatter);
            require(part[0] == 2 * (first + static_cast<float>(r.rank % 2)), "its own part of both");
            const auto everybody = r.comm.exchange(static_cast<std::uint64_t>(r.rank));
            for (std::size_t i = 0; i < 4; ++i) require(everybody[i] == i, "world order");
          }),
      IsEmpty());
  std::vector<std::string> names;
  for (const auto& c : fake.configs()) {
    names.push_back(c.name);
    EXPECT_EQ(c.min_ctas, 4);
    EXPECT_EQ(c.max_ctas, 16);
  }
  EXPECT_THAT(names, ElementsAre("shardscope.world", "shardscope.shard.2", "shardscope.replica.2",
                                 "shardscope.reduce_scatter.2", "shardscope.reduce_scatter"));
  EXPECT_THAT(fake.faults(), IsEmpty());
  EXPECT_EQ(fake.live(), FakeCuda::Live{});
}

TEST(NcclCollectives, AnOlderLibraryThanTheBuildsIsRefusedWithTheRemedy) {
  FakeCuda fake(1);
  fake.set_nccl_version(22705);
  EXPECT_THAT(
      [&] { check_nccl_version(fake.nccl(0)); },
      ThrowsMessage<EnvironmentError>(HasSubstr("NCCL 2.27.5 is loaded, the build needs 2.28.9 or newer; put")));
  for (const int version : {22809, 22800, 23001}) {
    fake.set_nccl_version(version);
    EXPECT_NO_THROW(check_nccl_version(fake.nccl(0)));
  }
}

TEST(NcclCollectives, ARankThatIsMissingAtTheStartIsATimeoutForTheOthers) {
  FakeCuda fake(2);
  const auto board = make_thread_board(2);
  constexpr Nanos kShort = 50'000'000;
  CudaDevice device(fake.runtime(0), {.timeout = kShort});
  EXPECT_THAT(
      [&] { NcclCollectives(device, fake.nccl(0), make_local_transport(board, 0, kShort), {.timeout = kShort}); },
      ThrowsMessage<TimeoutError>(HasSubstr("rank 1 has not arrived")));
}

using Calls = std::map<std::string, int>;  // by name

// Everything that a step does, with recording: each call of both libraries comes at least once. Says how many calls
// there were when only clean-up was left.
void step(Rank r, Calls& calls) {
  r.device.set_recording(true);
  r.device.begin_step(0);
  const int world = r.comm.world();
  Floats shard(r, 8, 1), sum(r, 8, 0), both(r, 8, 1);
  Floats reduce(r, 8 * world, 1);
  void* const full = r.comm.take(32 * world, Lane::kAllGather);
  const int before = std::uncaught_exceptions();
  struct Give {
    Rank& r;
    void* p;
    int before;
    ~Give() {
      if (std::uncaught_exceptions() > before) r.comm.cancel();
      r.comm.give(p);
    }
  } give{r, full, before};
  r.comm.enqueue(Lane::kAllGather,
                 call_of(CollectiveKind::kAllGather, Communicator::kShard, shard.data(), static_cast<float*>(full), 8));
  r.device.wait(Lane::kCompute, r.device.record(Lane::kAllGather));
  r.device.compute_context({SpanKind::kCompute, 4, Pass::kForward, 0});
  r.fake.enqueue(r.rank, r.device.stream(Lane::kCompute), "compute", {{full, 32 * world}},
                 {{reduce.data(), 32 * world}});
  r.device.host_context();
  r.device.wait(Lane::kReduceScatter, r.device.record(Lane::kCompute));
  CollectiveCall call =
      call_of(CollectiveKind::kReduceScatter, Communicator::kReduceScatter, reduce.data(), sum.data(), 8);
  call.accumulate = true;  // through scratch and a kernel
  r.comm.enqueue(Lane::kReduceScatter, call);
  r.device.wait(Lane::kCompute, r.device.record(Lane::kReduceScatter), SpanKind::kMemoryWait);
  r.device.wait(Lane::kAllReduce, r.device.record(Lane::kCompute));
  r.comm.enqueue(Lane::kAllReduce, call_of(CollectiveKind::kAllReduce, {}, both.data(), both.data(), 8));
  r.comm.enqueue(Lane::kAllReduce, call_of(CollectiveKind::kBroadcast, {}, both.data(), both.data(), 8));
  r.device.wait(Lane::kCompute, r.device.record(Lane::kAllReduce));
  r.device.end_step();
  r.comm.exchange(1);
  require(r.device.take_spans().size() >= 6, "spans");
  calls = r.fake.calls(r.rank);
}

class Failing : public ::testing::TestWithParam<bool> {};

struct Attempt {
  std::vector<std::string> texts;
  std::string failed;        // the call that failed, empty when there were fewer of it
  bool in_clean_up = false;  // which has nobody to tell
  Calls calls;               // of rank 0
};

// However it ends, nothing is left. `name` and `number`: the call of rank 0 that fails.
Attempt attempt_within(Nanos timeout, int world, const std::string& name, int number, NcclOptions options) {
  FakeCuda fake(world);
  fake.fail_call(0, name, number);
  options.timeout = timeout;
  std::optional<Calls> of_body;
  Attempt a;
  a.texts = run(fake, world, options, [&](Rank r) {
    Calls calls;
    step(r, calls);
    if (r.rank == 0) of_body = calls;
  });
  a.failed = fake.failed_call();
  a.in_clean_up = of_body && number >= (*of_body)[name];
  a.calls = fake.calls(0);
  EXPECT_EQ(fake.live(), FakeCuda::Live{}) << name << " " << number << " of " << world << " ranks";
  EXPECT_THAT(fake.faults(), IsEmpty()) << name << " " << number << " of " << world << " ranks";
  return a;
}

// Whether the error names the call that failed, where somebody can be told of it.
bool is_told(const Attempt& a) {
  if (a.failed.empty()) return a.texts.empty();
  static const std::set<std::string> kCleanUp = {"cudaEventDestroy", "cudaStreamDestroy", "cudaFree", "ncclMemFree",
                                                 "ncclCommDeregister"};
  if (a.in_clean_up || kCleanUp.contains(a.failed)) return true;
  // Memory was short: what lay idle went, and then there was some.
  if (a.failed == "ncclMemAlloc" && a.texts.empty()) return true;
  return !a.texts.empty() && a.texts.front().find(a.failed) != std::string::npos;
}

// On a busy machine a short wait can end a sound world too, before the call that was to fail: then none failed, or one
// of those that end what is left, and rank 0 speaks of the wait, its own or its peer's.
bool ended_too_soon(const Attempt& a) {
  if (a.texts.empty() || a.failed.empty()) return !a.texts.empty();
  const std::string& text = a.texts.front();
  const bool waited = text.find("waited") != std::string::npos || text.find("is not complete") != std::string::npos;
  return waited && !is_told(a);
}

// A short wait ends the worlds that fail soon; a longer one tells them from those that it ended itself.
Attempt attempt(int world, const std::string& name, int number, const NcclOptions& options) {
  if (world == 1) return attempt_within(testing::kLongTimeout, world, name, number, options);
  for (const Nanos timeout : {60'000'000, 1'000'000'000}) {
    Attempt a = attempt_within(timeout, world, name, number, options);
    if (!ended_too_soon(a)) return a;
  }
  return attempt_within(20'000'000'000, world, name, number, options);
}

TEST_P(Failing, EachCallFailsOnceAndTheErrorNamesItAndNothingIsLeft) {
  const bool registered = GetParam();
  const NcclOptions options{.communicators = {Communicator::kReduceScatter}, .registered_buffers = registered};
  for (const int world : {1, 2}) {
    const Attempt sound = attempt(world, "no call", 0, options);
    ASSERT_THAT(sound.texts, IsEmpty());
    std::set<std::string> failed;
    for (const auto& [name, count] : sound.calls) {
      for (int number = 0; number < count; ++number) {
        const Attempt a = attempt(world, name, number, options);
        ASSERT_TRUE(is_told(a)) << name << " " << number << " of " << world << " ranks"
                                << ::testing::PrintToString(a.texts);
        if (!a.failed.empty()) failed.insert(a.failed);
      }
      EXPECT_TRUE(failed.contains(name)) << name;
    }
    for (const char* call :
         {"cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cudaEventRecord", "cudaEventQuery",
          "cudaStreamWaitEvent", "cudaEventElapsedTime", "sum kernel", "ncclGetVersion", "ncclGetUniqueId",
          "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommGetAsyncError", "ncclAllGather", "ncclReduceScatter",
          "ncclAllReduce", "ncclBroadcast", "ncclCommFinalize", "ncclCommDestroy", "cudaFree"}) {
      EXPECT_TRUE(failed.contains(call)) << call;
    }
    EXPECT_EQ(failed.contains("ncclCommRegister"), registered);
    EXPECT_EQ(failed.contains("ncclMemAlloc"), registered);
  }
}

INSTANTIATE_TEST_SUITE_P(NcclCollectives, Failing, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Registered" : "Plain"; });

}  // namespace
}  // namespace fsdp
