#include "fsdp/comm/host_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
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
        t.world = make_local_transport(whole, rank, setup.timeout);
        const int group = setup.replicas > 1 ? setup.shard : 0;
        const auto add = [&](Communicator::Role role, const std::shared_ptr<ThreadBoard>& board, int place) {
          t.others.emplace_back(Communicator(role, group), make_local_transport(board, place, setup.timeout));
        };
        if (setup.own_reduce_scatter) add(Communicator::kReduceScatter, reduce[static_cast<std::size_t>(g)], p);
        if (group > 0) {
          add(Communicator::kShard, shard[static_cast<std::size_t>(g)], p);
          add(Communicator::kReplica, replica[static_cast<std::size_t>(p)], g);
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
CollectiveCall reduce(const float* in, float* out, Count n, UnitId unit = 0,
                      Communicator::Role role = Communicator::kShard) {
  CollectiveCall c = gather(in, out, n, unit);
  c.kind = CollectiveKind::kReduceScatter, c.communicator = role, c.pass = Pass::kBackward;
  return c;
}

// A round of a training step: gather two units ahead, reduce behind, by the communicator of that role. Groups of
// `group` ranks; 0: all.
void train(Rank r, int rounds, int group = 0, Communicator::Role reduces = Communicator::kShard) {
  const int world = group > 0 ? group : r.comm.world();
  const int place = r.comm.rank() % world;
  const auto among = [group](CollectiveCall c) {
    c.communicator.ranks = group;
    return c;
  };
  constexpr Count n = 3000;
  const auto full = static_cast<std::size_t>(n * world);
  std::vector<float> shard(n), gathered[2] = {std::vector<float>(full), std::vector<float>(full)}, part(n);
  for (int k = 0; k < rounds; ++k) {
    shard.assign(n, static_cast<float>(place + k));
    for (int u = 0; u < 2; ++u) r.comm.enqueue(Lane::kAllGather, among(gather(shard.data(), gathered[u].data(), n, u)));
    const Event both = r.device.record(Lane::kAllGather);
    r.device.wait(Lane::kCompute, both);
    for (int u = 0; u < 2; ++u) {
      for (std::size_t i = 0; i < full; ++i)
        require(gathered[u][i] == static_cast<float>(static_cast<Count>(i) / n + k), "gathered");
    }
    r.comm.enqueue(Lane::kReduceScatter, among(reduce(gathered[1].data(), part.data(), n, 1, reduces)));
    r.device.wait(Lane::kCompute, r.device.record(Lane::kReduceScatter), SpanKind::kMemoryWait);
    require(part[0] == static_cast<float>(world * (place + k)), "reduced");
  }
}

TEST(HostCollectives, TrainsOverOneChannel) {
  for (const int world : {1, 2, 3}) EXPECT_THAT(run({.shard = world}, [](Rank r) { train(r, 50); }), IsEmpty());
}

TEST(HostCollectives, TrainsWithAReduceScatterChannelOfItsOwn) {
  EXPECT_THAT(run({.own_reduce_scatter = true}, [](Rank r) { train(r, 50, 0, Communicator::kReduceScatter); }),
              IsEmpty());
}

TEST(HostCollectives, ReplicasReduceAcrossShardGroups) {
  EXPECT_THAT(run({.shard = 2, .replicas = 2},
                  [](Rank r) {
                    train(r, 5, 2);
                    std::vector<float> part(10, static_cast<float>(1 << r.comm.rank()));
                    CollectiveCall c = gather(part.data(), part.data(), 10);
                    c.kind = CollectiveKind::kAllReduce, c.communicator = {Communicator::kReplica, 2};
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
                    [replicas](Rank r) {
                      std::vector<float> in(8), out(16);
                      std::string text;
                      CollectiveCall call = gather(in.data(), out.data(), 8, 4);
                      if (replicas > 1) call.communicator.ranks = 2;
                      if (r.comm.rank() == 1) {
                        text = text_thrown<CommError>([&] { r.comm.exchange(1); });
                      } else if (r.comm.rank() == 0) {
                        r.comm.enqueue(Lane::kAllGather, call);
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
  EXPECT_THAT(
      run({.own_reduce_scatter = true},
          [](Rank r) {
            std::vector<float> in(16), out(16);
            if (r.comm.rank() == 1) return r.comm.abort("out of memory in unit 9");
            r.comm.enqueue(Lane::kAllGather, gather(in.data(), out.data(), 8));
            r.comm.enqueue(Lane::kReduceScatter, reduce(in.data(), out.data(), 8, 0, Communicator::kReduceScatter));
            for (const Lane lane : {Lane::kReduceScatter, Lane::kAllGather}) {
              const std::string text = text_thrown<CommError>([&] { r.device.synchronize(r.device.record(lane)); });
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

TEST(Communicators, ConnectGroupsOfConsecutiveRanksOrWhatHasTheSamePlaceInThem) {
  constexpr Communicator all, pairs{Communicator::kShard, 2}, across{Communicator::kReplica, 2};
  EXPECT_EQ(all.size(6), 6);
  EXPECT_EQ(pairs.size(6), 2);
  EXPECT_EQ(across.size(6), 3);
  EXPECT_EQ(all.size(4), 4);
  EXPECT_EQ(pairs.size(4), 2);
  EXPECT_EQ(across.size(4), 2);
  EXPECT_THAT(pairs.members(5, 6), ElementsAre(4, 5));
  EXPECT_THAT(across.members(5, 6), ElementsAre(1, 3, 5));
  for (const Communicator c : {all, pairs, across, Communicator(Communicator::kReduceScatter, 3)}) {
    for (int rank = 0; rank < 6; ++rank) {
      const std::vector<int> members = c.members(rank, 6);
      EXPECT_EQ(static_cast<int>(members.size()), c.size(6));
      EXPECT_EQ(members[static_cast<std::size_t>(c.place_of(rank, 6))], rank);
      for (const int peer : members) EXPECT_EQ(c.set_of(peer, 6), c.set_of(rank, 6));
    }
  }
  EXPECT_EQ(name_of(all), "world");
  EXPECT_EQ(name_of(Communicator::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(name_of(across), "replica.2");
  EXPECT_NE(pairs, all);
  EXPECT_TRUE(pairs.is_group());
  for (const Communicator c : {all, across, Communicator(Communicator::kReduceScatter, 2)}) EXPECT_FALSE(c.is_group());
}

TEST(HostCollectives, CallsOfGroupsOfSeveralSizesDoNotMeet) {
  std::vector<std::shared_ptr<ThreadBoard>> pairs{make_thread_board(2), make_thread_board(2)};
  const auto whole = make_thread_board(4);
  std::vector<std::thread> threads;
  std::vector<float> of_pair(4), of_all(4);
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      HostTransports t;
      t.world = make_local_transport(whole, rank, testing::kLongTimeout);
      t.others.emplace_back(
          Communicator(Communicator::kShard, 2),
          make_local_transport(pairs[static_cast<std::size_t>(rank / 2)], rank % 2,
                               std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}, testing::kLongTimeout));
      HostDevice device({.rank = rank, .timeout = testing::kLongTimeout});
      HostCollectives comm(device, std::move(t));
      const float in = static_cast<float>(1 << rank);
      CollectiveCall c = gather(&in, &of_pair[static_cast<std::size_t>(rank)], 1, 7);
      c.kind = CollectiveKind::kAllReduce, c.communicator.ranks = 2;
      comm.enqueue(Lane::kAllReduce, c);
      c.out = &of_all[static_cast<std::size_t>(rank)], c.unit = 8, c.communicator = {};
      comm.enqueue(Lane::kAllReduce, c);
      device.drain();
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_THAT(of_pair, ElementsAre(3, 3, 12, 12));
  EXPECT_THAT(of_all, ::testing::Each(15));
}

TEST(HostCollectives, ACallThatHasNoTransportAndNoTransportOfAllRanksAreRefused) {
  HostDevice device({.shared_channel = false});
  EXPECT_THAT([&] { HostCollectives(device, {}); }, ThrowsMessage<ConfigError>(HasSubstr("no transport of all ranks")));
  HostTransports t;
  t.world = make_local_transport(make_thread_board(1), 0, testing::kLongTimeout);
  HostCollectives comm(device, std::move(t));
  float in = 1, out = 0;
  EXPECT_THAT([&] { comm.enqueue(Lane::kReduceScatter, reduce(&in, &out, 1, 0, Communicator::kReduceScatter)); },
              ThrowsMessage<std::logic_error>(HasSubstr("communicator reduce_scatter")));
}

}  // namespace
}  // namespace fsdp
