#include "harness/trial/lateness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/core/errors.h"
#include "harness/trial/run_store.h"

namespace harness {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

CommunicatorState world(std::uint64_t calls, bool waiting) { return {"world", {0, 1, 2}, calls, waiting}; }
RankState in(std::vector<CommunicatorState> at) {
  RankState r;
  r.at = std::move(at);
  return r;
}

TEST(LateRanks, WhoHasNotComeWhereTheOthersWaitIsLate) {
  EXPECT_THAT(late_ranks({in({world(5, true)}), in({world(5, true)}), in({world(4, false)})}), ElementsAre(2));
  EXPECT_THAT(late_ranks({in({world(4, false)}), in({world(5, true)}), in({world(5, true)})}), ElementsAre(0));
}

TEST(LateRanks, WhoHasNoCommunicatorYetIsLateOnTheOthersFirst) {
  EXPECT_THAT(late_ranks({in({world(1, true)}), in({}), in({world(1, true)})}), ElementsAre(1));
}

TEST(LateRanks, WhoWaitsForSomebodyElseIsExcused) {
  // Ranks 0 and 1 are in a group, 1 waits for 2 on the world, 0 waits for 1.
  const RankState zero = in({world(5, false), {"pair", {0, 1}, 3, true}});
  const RankState one = in({world(6, true), {"pair", {0, 1}, 2, false}});
  EXPECT_THAT(late_ranks({zero, one, in({world(5, false)})}), ElementsAre(2));
}

TEST(LateRanks, WhoDoesNotAnswerIsTheOneWhateverTheOthersSay) {
  RankState stopped = in({world(5, true)});  // it has come, and was stopped there
  stopped.answers = false;
  stopped.sight = {true, true, 7};
  stopped.where = "repetition 1, step 4";
  const std::vector<RankState> ranks = {in({world(5, true)}), stopped, in({world(5, true)})};
  EXPECT_THAT(late_ranks(ranks), ElementsAre(1));
  EXPECT_EQ(lateness_text(ranks, {1}, Lateness::kAwaited, "in repetition 1"),
            "rank 1 does not answer in repetition 1: its process is stopped (SIGSTOP) (repetition 1, step 4)");
}

TEST(LateRanks, NobodyIsWhenAllAreInTheSameCallOrTheLateOneIsGone) {
  EXPECT_THAT(late_ranks({in({world(5, true)}), in({world(5, true)}), in({world(5, true)})}), IsEmpty());
  RankState gone = in({world(4, false)});
  gone.gone = true;
  EXPECT_THAT(late_ranks({in({world(5, true)}), gone, in({world(5, true)})}), IsEmpty());
}

TEST(LateRanks, AnAccountComesBackAsItWas) {
  const std::vector<CommunicatorState> at = {world(5, true), {"shard.2/1", {2, 3}, 0, false}};
  EXPECT_EQ(*at_from_json(at_line(at)), at);
  EXPECT_FALSE(at_from_json(R"({"event":"ready","pid":1})"));
  EXPECT_THROW(at_from_json(R"({"at":[["world"]]})"), fsdp::CommError);
}

TEST(RunStore, AValueReachesWhoAskedBeforeAndAfterAndTheFirstOneStays) {
  RunStore store;
  std::vector<std::unique_ptr<LeaderRendezvous>> ranks;
  const auto deliver = [&](int rank, const std::string& line) {
    const auto answers = store.take(rank, line);
    for (const RunStore::Answer& a : answers.value())
      EXPECT_TRUE(ranks[static_cast<std::size_t>(a.rank)]->take(a.line));
  };
  for (int r = 0; r < 3; ++r)
    ranks.push_back(
        std::make_unique<LeaderRendezvous>("127.0.0.1", [&deliver, r](const std::string& line) { deliver(r, line); }));
  const std::string bytes("a\0\n\xff\"", 5);
  const auto before = ranks[1]->await("key");
  EXPECT_FALSE(before->value());
  ranks[0]->set("key", bytes);
  ranks[2]->set("key", "another");
  EXPECT_EQ(before->value(), bytes);
  EXPECT_EQ(ranks[2]->await("key")->value(), bytes);
}

TEST(RunStore, OtherLinesAreLeftAloneAndExcessesAreErrors) {
  RunStore store;
  EXPECT_FALSE(store.take(0, R"({"event":"ready","pid":1})"));
  EXPECT_THROW(store.take(0, R"({"store":["drop","x"]})"), fsdp::CommError);
  EXPECT_THROW(store.take(0, R"({"store":7})"), fsdp::CommError);
  EXPECT_THROW(store.take(0, R"({"store":["set","k",")" + std::string(2 << 20, 'a') + "\"]}"), fsdp::CommError);
  LeaderRendezvous rank("127.0.0.1", [](const std::string&) {});
  EXPECT_FALSE(rank.take(R"({"do":"repeat"})"));
}

}  // namespace
}  // namespace harness
