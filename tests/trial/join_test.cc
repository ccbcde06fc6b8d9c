// Runs whose ranks a launcher has started: each process is a thread here, its rank program the fake of this room.
#include "harness/trial/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "harness/trial/join_messages.h"
#include "harness/trial/joined_ranks.h"
#include "tests/testing/time.h"

namespace harness {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

constexpr fsdp::Nanos kSecond = 1'000'000'000;
const std::string kSecret = "a secret of this test alone";

class JoinedTrial : public testing::Test {
 protected:
  struct Ended {
    int code = -1;  // of a follower
    std::string error;
    CaseRecord record;  // of rank 0
  };

  void SetUp() override {
    unsetenv("FAKE_RANK");
    settings_.steps = 2;
    settings_.step_timeout = 20 * kSecond;
  }
  void TearDown() override { unsetenv("FAKE_RANK"); }

  RankPlace place(int rank, int world) const {
    RankPlace p{"torchrun", rank, world, rank, world, "127.0.0.1", 29'999};
    p.store_is_served = true;
    p.run = "join_test " + std::to_string(getpid());  // the port follows from it, and tests run beside each other
    return p;
  }
  Ended take_part(const RankPlace& p, const CaseSettings& settings) const {
    Ended e;
    try {
      if (p.rank == 0) {
        TrialOptions options;
        options.rank_program = SHARDSCOPE_FAKE_RANK;
        options.repeat.min = options.repeat.max = 2;
        e.record = lead_trial(p, kSecret, settings, options);
      } else {
        e.code = follow_trial(p, kSecret, settings, {SHARDSCOPE_FAKE_RANK, "", nullptr});
      }
    } catch (const fsdp::Error& error) {
      e.error = error.what();
    }
    return e;
  }
  // All at once; `settings` of each rank.
  std::vector<Ended> run(const std::vector<RankPlace>& places, const std::vector<CaseSettings>& settings) const {
    std::vector<Ended> ended(places.size());
    std::vector<std::thread> processes;
    for (std::size_t i = 0; i < places.size(); ++i)
      processes.emplace_back([&, i] { ended[i] = take_part(places[i], settings[i]); });
    for (std::thread& t : processes) t.join();
    return ended;
  }
  std::vector<Ended> run(int world) {
    std::vector<RankPlace> places;
    for (int r = 0; r < world; ++r) places.push_back(place(r, world));
    return run(places, std::vector<CaseSettings>(places.size(), settings_));
  }

  CaseSettings settings_;
};

TEST_F(JoinedTrial, RankZeroLeadsAndHasTheRecordTheOthersEndAsItSays) {
  settings_.world = 3;
  const auto all = run(3);
  ASSERT_EQ(all[0].error, "");
  const CaseRecord& r = all[0].record;
  EXPECT_EQ(r.status, Status::kOk) << r.reason;
  EXPECT_THAT(r.samples, ElementsAre(3000, 6000));  // of the slowest rank, see fake_rank.cc
  EXPECT_EQ(r.ranks.size(), 3u);
  EXPECT_TRUE(r.partition);
  EXPECT_EQ(r.environment.at("launched_by"), "torchrun");
  EXPECT_THAT(r.environment.at("hosts"), HasSubstr(":3"));
  EXPECT_EQ(all[1].code, 0) << all[1].error;
  EXPECT_EQ(all[2].code, 0) << all[2].error;
}

TEST_F(JoinedTrial, RanksKnowTheLocalRankThatTheirLauncherGave) {
  std::vector<RankPlace> places = {place(0, 2), place(1, 2)};
  std::swap(places[0].local_rank, places[1].local_rank);
  EXPECT_THAT(run(places, {settings_, settings_})[0].record.warnings,
              IsSupersetOf({"rank 0 is local rank 1", "rank 1 is local rank 0"}));
}

TEST_F(JoinedTrial, ARankThatIsKilledIsTheReasonAndEveryProcessEndsBadly) {
  setenv("FAKE_RANK", "1 kill repetition2", 1);
  const auto all = run(2);
  EXPECT_EQ(all[0].record.status, Status::kCrashed);
  EXPECT_THAT(all[0].record.reason, HasSubstr("rank 1 was killed by SIGKILL in repetition 2"));
  EXPECT_EQ(all[1].code, 1) << all[1].error;
}

TEST_F(JoinedTrial, AnAbortedRanksLastWordsReachTheLeader) {
  setenv("FAKE_RANK", "1 abort repetition1", 1);
  EXPECT_THAT(run(2)[0].record.reason, HasSubstr("terminate called after nothing"));
}

TEST_F(JoinedTrial, OtherSettingsOnARankAreATableOnEveryRank) {
  std::vector<CaseSettings> settings(3, settings_);
  settings[0].world = settings[1].world = settings[2].world = 3;
  settings[2].batch = 4;
  for (const Ended& e : run({place(0, 3), place(1, 3), place(2, 3)}, settings)) {
    EXPECT_THAT(e.error, HasSubstr("rank 2 has other settings than rank 0 (batch 4 against 1)"));
    EXPECT_EQ(std::count(e.error.begin(), e.error.end(), '\n'), 5) << "a sentence, a head, three ranks\n" << e.error;
  }
}

TEST_F(JoinedTrial, TwoRanksOnOneLocalRankAreATableOnEveryRank) {
  std::vector<RankPlace> places = {place(0, 2), place(1, 2)};
  places[1].local_rank = 0;
  for (const Ended& e : run(places, {settings_, settings_}))
    EXPECT_THAT(e.error, HasSubstr("ranks 0 and 1 are both local rank 0 on "));
}

TEST_F(JoinedTrial, AMissingRankIsNamedWithinTheTimeLimit) {
  settings_.world = 3;
  settings_.step_timeout = 2 * kSecond;
  const fsdp::Nanos begin = fsdp::steady_now();
  const auto all = run({place(0, 3), place(1, 3)}, {settings_, settings_});
  EXPECT_LT(fsdp::steady_now() - begin, testing_support::kPatience);
  for (const Ended& e : all) EXPECT_THAT(e.error, HasSubstr("rank 2 of 3 is missing"));
}

TEST_F(JoinedTrial, AnotherNumberOfRanksThanTheCaseHasIsRefusedOnEveryRank) {
  settings_.world = 4;
  for (const Ended& e : run(2)) EXPECT_THAT(e.error, HasSubstr("give --world 2"));
}

TEST_F(JoinedTrial, APlaceWithoutAMasterIsRefusedBeforeAnythingStarts) {
  RankPlace p = place(1, 2);
  p.master_addr.clear();
  EXPECT_THAT(take_part(p, settings_).error, HasSubstr("MASTER_ADDR"));
}

TEST_F(JoinedTrial, WhatOneProcessStandsForIsRefusedBeforeAnythingStarts) {
  settings_.device = DeviceKind::kVirtual;
  EXPECT_THAT(take_part(place(1, 2), settings_).error, HasSubstr("start shardscope alone"));
  settings_.device = DeviceKind::kCuda;
  settings_.wire = fsdp::Wire{50'000, 10e9};
  EXPECT_THAT(take_part(place(0, 2), settings_).error, HasSubstr("one GPU stands for all ranks"));
}

TEST(JoinedRanks, ALineThatCannotBeReadDoesNotDisturbTheEnd) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  std::vector<JoinedRanks::Rank> ranks(1);
  ranks[0].socket = LineSocket(Fd(pair[0]));
  LineSocket peer{Fd(pair[1])};
  peer.send(R"({"ended":7})");
  JoinedRanks joined(std::move(ranks));
  joined.finish(0);
  EXPECT_THAT(peer.receive(), ElementsAre(end_line(0)));
  EXPECT_FALSE(peer.open());
}

TEST(JoinMessages, LinesComeBackAsTheyWereAndOtherLinesAreLeftAlone) {
  const RankPreparation p{"/proc/1/fd/4", "eth0", 17, "host0"};
  EXPECT_EQ(to_json_line(*preparation_from_json(to_json_line(p))), to_json_line(p));
  EXPECT_EQ(seen_from_json(seen_line({true, true, 5}))->ticks, 5);
  const RankEnd e{9, true, "last \"words\"\n"};
  EXPECT_EQ(rank_end_from_json(to_json_line(e))->log, e.log);
  EXPECT_EQ(*end_from_json(end_line(130)), 130);
  EXPECT_EQ(*refusal_from_json(refusal_line("no\nway")), "no\nway");
  EXPECT_FALSE(end_from_json(R"({"do":"repeat"})"));
  EXPECT_THROW(hello_from_json("GET / HTTP/1.1"), fsdp::CommError);
  EXPECT_THROW(rank_end_from_json(R"({"ended":7})"), fsdp::CommError);
}

TEST(JoinMessages, NumbersOutsideOfTheirRangesAreRefused) {
  const auto refused = [](auto&& read) {
    try {
      read();
    } catch (const fsdp::CommError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto with = [](std::string line, const std::string& key, const std::string& value) {
    const std::size_t at = line.find('"' + key + "\":");
    EXPECT_NE(at, std::string::npos) << key << " in " << line;
    const std::size_t begin = at + key.size() + 3;
    return line.replace(begin, line.find_first_of(",}", begin) - begin, value);
  };
  const std::string hello = to_json_line(Hello{}), preparation = to_json_line(RankPreparation{}),
                    ended = to_json_line(RankEnd{}), seen = seen_line({true, false, 1});
  for (const char* value :
       {"1e300", "-9223372036854775808", "18446744073709551615", "4294967296123456789", "0.5", "\"1\""}) {
    for (const char* key : {"rank", "pid", "local_rank"})
      EXPECT_NE(refused([&] { hello_from_json(with(hello, key, value)); }).find("not a whole number from"),
                std::string::npos)
          << key << " " << value;
    EXPECT_NE(refused([&] { preparation_from_json(with(preparation, "leader_pid", value)); }), "accepted") << value;
    EXPECT_NE(refused([&] { rank_end_from_json(with(ended, "status", value)); }), "accepted") << value;
    EXPECT_NE(refused([&] { seen_from_json(with(seen, "ticks", value)); }), "accepted") << value;
    EXPECT_NE(refused([&] { end_from_json(with(end_line(1), "end", value)); }), "accepted") << value;
  }
  // kill() takes a negative number for a group of processes.
  EXPECT_NE(refused([&] { preparation_from_json(with(preparation, "leader_pid", "-1")); }), "accepted");
  EXPECT_NE(refused([&] { end_from_json(end_line(256)); }), "accepted");
}

}  // namespace
}  // namespace harness
