#include "fsdp/comm/host_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "fsdp/comm/local_transport.h"
#include "fsdp/core/errors.h"
#include "tests/comm/transport_suite.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::require;
using testing::require_contains;
using testing::text_thrown;
using ::testing::ThrowsMessage;

struct Rank {
  HostDevice& device;
  HostCollectives& comm;
};

struct Setup {
  int shard = 2, replicas = 1;
  bool own_reduce_scatter = false;
  Nanos timeout = testing::kLongTimeout;
};

// Ranks as threads; rank = replica * shard + place in the shard group.
std::vector<std::string> run(const Setup& setup, const std::function<void(Rank)>& rank_main) {
  const int world = setup.shard * setup.replicas;
  std::vector<std::shared_ptr<ThreadBoard>> shard, reduce, replica;
  for (int g = 0; g < setup.replicas; ++g)
    shard.push_back(make_thread_board(setup.shard)), reduce.push_back(make_thread_board(setup.shard));
  for (int p = 0; p < setup.shard; ++p) replica.push_back(make_thread_board(setup.replicas));
  const auto whole = make_thread_board(world);
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const int g = rank / setup.shard, p = rank % setup.shard;
        HostTransports t;
        t.shard = make_local_transport(shard[static_cast<std::size_t>(g)], p, setup.timeout);
        if (setup.own_reduce_scatter)
          t.reduce_scatter = make_local_transport(reduce[static_cast<std::size_t>(g)], p, setup.timeout);
        if (setup.replicas > 1) {
          t.replica = make_local_transport(replica[static_cast<std::size_t>(p)], g, setup.timeout);
          t.world = make_local_transport(whole, rank, setup.timeout);
        }
        HostDevice device({rank, setup.timeout + testing::kLongTimeout, !setup.own_reduce_scatter});
        HostCollectives comm(device, std::move(t));
        rank_main({device, comm});
      } catch (const std::exception& e) {
        texts[static_cast<std::size_t>(rank)] = "rank " + std::to_string(rank) + ": " + e.what();
      }
    });
  }
  for (auto& t : threads) t.join();
  std::erase(texts, "");
  return texts;
}

CollectiveCall gather(const float* in, float* out, Count n, UnitId unit = 0) {
  CollectiveCall c;
  c.kind = CollectiveKind::kAllGather, c.unit = unit, c.pass = Pass::kForward, c.in = in, c.out = out, c.count = n;
  return c;
}
CollectiveCall reduce(const float* in, float* out, Count n, UnitId unit = 0) {
  CollectiveCall c = gather(in, out, n, unit);
  c.kind = CollectiveKind::kReduceScatter, c.communicator = Communicator::kReduceScatter, c.pass = Pass::kBackward;
  return c;
}

// A round of a training step: gather two units ahead, reduce behind.
void train(Rank r, int rounds) {
  const int world = r.comm.group_size(Communicator::kShard);
  const int place = r.comm.rank() % world;
  constexpr Count n = 3000;
  const auto full = static_cast<std::size_t>(n * world);
  std::vector<float> shard(n), gathered[2] = {std::vector<float>(full), std::vector<float>(full)}, part(n);
  for (int k = 0; k < rounds; ++k) {
    shard.assign(n, static_cast<float>(place + k));
    for (int u = 0; u < 2; ++u) r.comm.enqueue(Lane::kAllGather, gather(shard.data(), gathered[u].data(), n, u));
    const Event both = r.device.record(Lane::kAllGather);
    r.device.wait(Lane::kCompute, both);
    for (int u = 0; u < 2; ++u) {
      for (std::size_t i = 0; i < full; ++i)
        require(gathered[u][i] == static_cast<float>(static_cast<Count>(i) / n + k), "gathered");
    }
    r.comm.enqueue(Lane::kReduceScatter, reduce(gathered[1].data(), part.data(), n, 1));
    r.device.wait(Lane::kCompute, r.device.record(Lane::kReduceScatter), SpanKind::kMemoryWait);
    require(part[0] == static_cast<float>(world * (place + k)), "reduced");
  }
}

TEST(HostCollectives, TrainsOverOneChannel) {
  for (const int world : {1, 2, 3}) EXPECT_THAT(run({.shard = world}, [](Rank r) { train(r, 50); }), IsEmpty());
}

TEST(HostCollectives, TrainsWithAReduceScatterChannelOfItsOwn) {
  EXPECT_THAT(run({.own_reduce_scatter = true}, [](Rank r) { train(r, 50); }), IsEmpty());
}

TEST(HostCollectives, ReplicasReduceAcrossShardGroups) {
  EXPECT_THAT(run({.shard = 2, .replicas = 2},
                  [](Rank r) {
                    train(r, 5);
                    require(r.comm.world() == 4 && r.comm.group_size(Communicator::kReplica) == 2, "two groups of two");
                    std::vector<float> part(10, static_cast<float>(1 << r.comm.rank()));
                    CollectiveCall c = gather(part.data(), part.data(), 10);
                    c.kind = CollectiveKind::kAllReduce, c.communicator = Communicator::kReplica;
                    r.comm.enqueue(Lane::kAllReduce, c);
                    r.device.synchronize(r.device.record(Lane::kAllReduce));
                    require(part[9] == (r.comm.rank() % 2 == 0 ? 5.0f : 10.0f), "ranks 0 and 2, ranks 1 and 3");
                    const auto all = r.comm.exchange(static_cast<std::uint64_t>(r.comm.rank()));
                    for (std::size_t i = 0; i < 4; ++i) require(all[i] == i, "world order");
                  }),
              IsEmpty());
}

TEST(HostCollectives, ADisagreementReachesTheHostOfEveryRankAtItsNextWait) {
  EXPECT_THAT(run({.shard = 3},
                  [](Rank r) {
                    std::vector<float> in(8), out(24);
                    r.comm.enqueue(Lane::kAllGather, gather(in.data(), out.data(), 8, r.comm.rank() == 1 ? 5 : 4));
                    r.comm.enqueue(Lane::kAllGather, gather(in.data(), out.data(), 8, 6));
                    const std::string text = text_thrown<CommError>(
                        [&] { r.device.wait(Lane::kCompute, r.device.record(Lane::kAllGather)); });
                    require_contains(text, "rank 0 is in all_gather of unit 4");
                    require_contains(text, "rank 1 is in all_gather of unit 5");
                    text_thrown<CommError>([&] { r.comm.exchange(1); });
                  }),
              IsEmpty());
}

TEST(HostCollectives, AnExchangeThatMeetsACollectiveIsNamedWithReplicasToo) {
  for (const int replicas : {1, 2}) {
    EXPECT_THAT(run({.shard = 2, .replicas = replicas},
                    [](Rank r) {
                      std::vector<float> in(8), out(16);
                      std::string text;
                      if (r.comm.rank() == 1) {
                        text = text_thrown<CommError>([&] { r.comm.exchange(1); });
                      } else if (r.comm.rank() == 0) {
                        r.comm.enqueue(Lane::kAllGather, gather(in.data(), out.data(), 8, 4));
                        text = text_thrown<CommError>([&] { r.device.synchronize(r.device.record(Lane::kAllGather)); });
                      } else {  // the other group: told through the world's communicator
                        text = text_thrown<CommError>([&] { r.comm.exchange(1); });
                      }
                      require_contains(text, "rank 0 is in all_gather of unit 4");
                      require_contains(text, "rank 1 is in exchange");
                    }),
                IsEmpty());
  }
}

TEST(HostCollectives, AFailureOfOneChannelEndsThePeersWaitsOnTheOthers) {
  EXPECT_THAT(run({.own_reduce_scatter = true},
                  [](Rank r) {
                    std::vector<float> in(16), out(16);
                    if (r.comm.rank() == 1) return r.comm.abort("out of memory in unit 9");
                    r.comm.enqueue(Lane::kAllGather, gather(in.data(), out.data(), 8));
                    r.comm.enqueue(Lane::kReduceScatter, reduce(in.data(), out.data(), 8));
                    for (const Lane lane : {Lane::kReduceScatter, Lane::kAllGather}) {
                      const std::string text =
                          text_thrown<CommError>([&] { r.device.synchronize(r.device.record(lane)); });
                      require_contains(text, "out of memory in unit 9");
                    }
                  }),
              IsEmpty());
}

TEST(HostCollectives, APeerThatNeverComesIsATimeoutThatNamesIt) {
  testing::SharedCounter ended;
  EXPECT_THAT(run({.shard = 3, .timeout = testing::kShortTimeout},
                  [&ended](Rank r) {
                    if (r.comm.rank() == 2) return ended.wait_for(2);
                    std::vector<float> in(8), out(24);
                    r.comm.enqueue(Lane::kAllGather, gather(in.data(), out.data(), 8, 4));
                    const std::string text =
                        text_thrown<TimeoutError>([&] { r.device.synchronize(r.device.record(Lane::kAllGather)); });
                    ended.add();
                    require_contains(text, "in all_gather of unit 4");
                    require_contains(text, "rank 2 has not arrived");
                  }),
              IsEmpty());
}

TEST(HostCollectives, ARankThatLeavesInTheMiddleTellsThePeers) {
  const auto texts = run({}, [](Rank r) {
    if (r.comm.rank() == 1) throw Error("not enough memory");
    std::vector<float> in(8), out(16);
    r.comm.enqueue(Lane::kAllGather, gather(in.data(), out.data(), 8));
    const std::string text = text_thrown<CommError>([&] { r.device.synchronize(r.device.record(Lane::kAllGather)); });
    require_contains(text, "rank 1 gave up: it stopped in the middle of its work");
  });
  EXPECT_THAT(texts, ElementsAre("rank 1: not enough memory"));
}

TEST(HostCollectives, CallsCarryTheirFullSizeIntoSpans) {
  EXPECT_THAT(run({.shard = 3},
                  [](Rank r) {
                    std::vector<float> in(24), out(24);
                    r.device.set_recording(true);
                    r.device.begin_step(0);
                    r.comm.enqueue(Lane::kAllGather, gather(in.data(), out.data(), 8, 4));
                    r.comm.enqueue(Lane::kReduceScatter, reduce(in.data(), out.data(), 8, 4));
                    r.device.drain();
                    r.device.end_step();
                    const std::vector<Span> spans = r.device.take_spans();
                    for (const SpanKind kind : {SpanKind::kAllGather, SpanKind::kReduceScatter}) {
                      const auto s =
                          std::find_if(spans.begin(), spans.end(), [&](const Span& x) { return x.kind == kind; });
                      require(s != spans.end() && s->bytes == 96 && s->unit == 4 && s->rank == r.comm.rank(), "span");
                      require(s->issued <= s->begin && s->begin <= s->end, "order");
                    }
                  }),
              IsEmpty());
}

TEST(HostCollectives, TransportsThatDoNotFitTogetherAreRefused) {
  HostDevice one({}), two({.shared_channel = false});
  const auto made_of = [](bool shard, bool replica) {
    const auto transport = [] { return make_local_transport(make_thread_board(1), 0, testing::kLongTimeout); };
    HostTransports t;
    if (shard) t.shard = transport();
    if (replica) t.replica = transport();
    return t;
  };
  EXPECT_THAT([&] { HostCollectives(one, made_of(false, false)); },
              ThrowsMessage<ConfigError>(HasSubstr("no transport for the shard group")));
  EXPECT_THAT([&] { HostCollectives(one, made_of(true, true)); },
              ThrowsMessage<ConfigError>(HasSubstr("replicas need a transport of the whole world")));
  EXPECT_THAT([&] { HostCollectives(two, made_of(true, false)); },
              ThrowsMessage<ConfigError>(HasSubstr("needs a communicator of its own")));
}

}  // namespace
}  // namespace fsdp
