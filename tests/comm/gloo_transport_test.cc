#include "fsdp/comm/gloo_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <numeric>
#include <thread>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "tests/comm/transport_suite.h"
#include "tests/testing/shell.h"

namespace fsdp::testing {

namespace {

// Threads are the ranks: what they tell each other goes through one object.
MemoryRendezvous& rendezvous() {
  static MemoryRendezvous all;
  return all;
}
int groups = 0;

}  // namespace

std::vector<World> worlds_under_test() {
  const auto gloo = [](int world, Nanos timeout, const RankMain& rank_main) {
    std::signal(SIGPIPE, SIG_IGN);  // as shardscope-rank does: Gloo writes to peers that are gone
    const std::string group = "group " + std::to_string(++groups);
    std::vector<int> members(static_cast<std::size_t>(world));
    std::iota(members.begin(), members.end(), 0);
    return run_threads(
        world, [&](int rank) { return make_gloo_transport(rendezvous(), group, rank, members, timeout, kLongTimeout); },
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

TEST(Rendezvous, TheFirstValueStaysAndWhoAskedBeforeHasItToo) {
  MemoryRendezvous r;
  const auto asked = r.await("key");
  EXPECT_FALSE(asked->value());
  EXPECT_FALSE(asked->wait_until(steady_now() + kMillisecond));
  r.set("key", "value");
  r.set("key", "another");
  EXPECT_EQ(asked->value(), "value");
  EXPECT_EQ(r.await("key")->wait_until(0), "value");
}

TEST(Rendezvous, AWaitEndsWhenTheValueComes) {
  MemoryRendezvous r;
  std::thread setter([&] { r.set("key", "value"); });
  EXPECT_EQ(r.await("key")->wait_until(steady_now() + kLongTimeout), "value");
  setter.join();
}

// Nobody connects, and nobody waits for longer than the time limit: who has not come is named.
TEST(GlooConnecting, ARankThatDoesNotComeIsNamed) {
  MemoryRendezvous r;
  const Nanos begin = steady_now();
  EXPECT_THAT(
      [&] {
        make_gloo_transport(r, "alone", 0, {0, 1}, kShortTimeout);
      },
      ThrowsMessage<TimeoutError>(HasSubstr("rank 1 has not come")));
  EXPECT_LT(steady_now() - begin, 10 * kShortTimeout);
}

// A rank that needs nothing more of one that has stopped in the middle of a call goes on to the next call.
TEST(GlooFailure, ARankThatIsACallAheadDoesNotDisagree) {
  MemoryRendezvous r;
  SharedCounter ended;
  const auto failures = run_threads(
      2,
      [&](int rank) {
        return make_gloo_transport(r, "ahead", rank, {0, 1}, 2 * kShortTimeout, kLongTimeout);
      },
      [&](Transport& t) {
        t.exchange(0);
        if (t.rank() == 1) {
          r.set("gloo/ahead/stuck/1", "all_gather of unit 3 (8 x fp32, call 1)");
          return ended.wait_for(1);
        }
        require_contains(text_thrown<TimeoutError>([&] { t.exchange(0); }), "rank 1 is still in all_gather of unit 3");
        ended.add();
      });
  EXPECT_THAT(failures, IsEmpty());
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
