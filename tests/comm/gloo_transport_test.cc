#include "fsdp/comm/gloo_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <numeric>

#include "fsdp/core/errors.h"
#include "tests/comm/transport_suite.h"
#include "tests/testing/shell.h"

namespace fsdp::testing {

namespace {

// One store for the whole program, a client per rank: connecting is what takes time.
struct Store {
  Store() {
    for (int r = 0; r < 4; ++r)
      clients[r] = std::make_unique<Rendezvous>(Rendezvous::Options{.port = server.port(), .rank = 1});
  }
  Rendezvous server{Rendezvous::Options{}};
  std::array<std::unique_ptr<Rendezvous>, 4> clients;
  int groups = 0;
};
Store& store() {
  static Store s;
  return s;
}

}  // namespace

std::vector<World> worlds_under_test() {
  const auto gloo = [](int world, Nanos timeout, const RankMain& rank_main) {
    const std::string group = "group " + std::to_string(++store().groups);
    std::vector<int> members(static_cast<std::size_t>(world));
    std::iota(members.begin(), members.end(), 0);
    return run_threads(
        world,
        [&](int rank) {
          return make_gloo_transport(*store().clients[static_cast<std::size_t>(rank)], group, rank, members, timeout);
        },
        rank_main);
  };
  World w{"Gloo", gloo};
  w.disagreement_timeout = kShortTimeout;
  w.knows_arrivals = false;
  return {w};
}

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(Rendezvous, CarriesValuesBetweenRanks) {
  Rendezvous zero({}), one({.port = zero.port(), .rank = 1});
  EXPECT_FALSE(one.has("key"));
  zero.set("key", "value");
  EXPECT_EQ(zero.get("key"), "value");  // a set has no answer: what follows on the same connection finds it done
  EXPECT_TRUE(one.has("key"));
  EXPECT_EQ(one.get("key"), "value");
  EXPECT_EQ(one.set_once("first", "1"), "1");
  EXPECT_EQ(zero.set_once("first", "0"), "1");
}

TEST(Rendezvous, AKeyThatNobodySetsIsATimeout) {
  Rendezvous zero({.timeout = kShortTimeout});
  EXPECT_THAT([&] { zero.get("absent"); }, ThrowsMessage<TimeoutError>(HasSubstr("nobody has set 'absent'")));
}

TEST(Rendezvous, APortInUseIsAnEnvironmentError) {
  Rendezvous zero({});
  EXPECT_THAT([&] { Rendezvous again({.port = zero.port()}); },
              ThrowsMessage<EnvironmentError>(HasSubstr("cannot serve at 127.0.0.1:" + std::to_string(zero.port()))));
}

// gloo_stub declares classes whose key functions live in LibTorch. An own copy of their vtables, with fewer slots,
// could replace the real one.
TEST(GlooObject, HoldsNoVtableOrTypeInfoOfGloo) {
  const std::string command = "nm -C " + testing_support::shell_word(SHARDSCOPE_GLOO_ARCHIVE) + " 2>/dev/null";
  FILE* nm = popen(command.c_str(), "r");
  ASSERT_NE(nm, nullptr);
  std::array<char, 4096> line;
  std::string found;
  int lines = 0;
  for (; std::fgets(line.data(), line.size(), nm) != nullptr; ++lines) {
    const std::string text = line.data();
    if (text.find(" U ") != std::string::npos) continue;  // wanted from LibTorch
    if (text.find("vtable for ") == std::string::npos && text.find("typeinfo for ") == std::string::npos) continue;
    if (text.find("gloo::") != std::string::npos || text.find("c10d::ProcessGroupGloo") != std::string::npos)
      found += text;
  }
  const int status = pclose(nm);
  if (status != 0 || lines == 0) GTEST_SKIP() << "no nm here";
  EXPECT_THAT(found, IsEmpty());
}

}  // namespace
}  // namespace fsdp::testing
