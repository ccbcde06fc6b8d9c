// What strangers can do at a leader's port, and what it costs: nothing, and little (docs/trust.md).
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "harness/trial/handshake.h"
#include "harness/trial/joined_ranks.h"
#include "harness/trial/meeting.h"

namespace harness {
namespace {
using testing::HasSubstr;

constexpr fsdp::Nanos kSecond = 1'000'000'000;
const std::string kSecret = "a secret of this test alone", kRun = "run 1";

std::size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

fsdp::Nanos processor_time() {
  rusage u{};
  getrusage(RUSAGE_THREAD, &u);
  return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * kSecond + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

// A leader that waits for two ranks, on a thread of its own.
class Gathering : public testing::Test {
 protected:
  void start(fsdp::Nanos patience = 20 * kSecond) {
    Listener listener = try_to_listen(kLoopback, 0);
    ASSERT_TRUE(listener.fd.open());
    port_ = listener.port;
    gathering_ = std::make_unique<RankGathering>(2, kSecret, kRun, std::move(listener));
    leader_ = std::thread([this, patience] {
      const fsdp::Nanos before = processor_time();
      try {
        ranks_ = gathering_->gather(
            fsdp::steady_now() + patience, [] {}, &stop_);
      } catch (const fsdp::ConfigError& e) {
        error_ = e.what();
      }
      leader_cpu_ = processor_time() - before;
    });
  }
  void TearDown() override {
    stop_ = true;
    if (leader_.joinable()) leader_.join();
  }
  Fd connect() { return try_to_connect(kLoopback, port_, fsdp::steady_now() + 5 * kSecond); }
  Meeting meeting() const { return {kLoopback, {port_}, kRun}; }

  // A rank as join.cc makes it; stays connected as long as the socket lives.
  LineSocket come(int rank, const std::string& secret = kSecret, fsdp::Nanos patience = 20 * kSecond) {
    LineSocket leader = meet_leader(meeting(), secret, fsdp::steady_now() + patience, [] { return true; });
    Hello hello;
    hello.identity.rank = hello.identity.local_rank = rank;
    hello.identity.host = "here";
    hello.identity.device = "cpu";
    leader.send(to_json_line(hello));
    return leader;
  }
  void both_join() {
    LineSocket zero = come(0), one = come(1);
    leader_.join();
    ASSERT_EQ(error_, "");
    ASSERT_TRUE(ranks_);
    EXPECT_EQ(ranks_->count(), 2);
    ranks_->send(1, "the job");
    std::string line;
    ASSERT_TRUE(one.next(line, fsdp::steady_now() + 5 * kSecond));
    EXPECT_EQ(line, "the job");
  }

  int port_ = 0;
  std::unique_ptr<RankGathering> gathering_;
  std::thread leader_;
  std::unique_ptr<JoinedRanks> ranks_;
  std::string error_;
  fsdp::Nanos leader_cpu_ = 0;
  std::atomic<bool> stop_{false};
};

TEST_F(Gathering, RanksThatKnowTheSecretJoin) {
  start();
  both_join();
  EXPECT_FALSE(connect().open()) << "nobody is let in afterwards";
}

TEST_F(Gathering, WhoDoesNotKnowTheSecretIsNoRankAndIsCounted) {
  start(kSecond);
  EXPECT_THROW(come(1, "a secret that is another one", kSecond / 2), fsdp::CommError);
  leader_.join();
  EXPECT_THAT(error_, HasSubstr("Connections that do not know this run's secret: "));
}

TEST_F(Gathering, AThousandSilentConnectionsLetRanksJoin) {
  std::vector<Fd> strangers;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  // This process plays both sides; tests/cluster/stranger_test.py gives the leader 256 descriptors.
  rlimit many = before;
  many.rlim_cur = std::min<rlim_t>(before.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &many);
  start();
  const std::size_t memory = resident_bytes();
  for (int i = 0; i < 1000; ++i) strangers.push_back(connect());
  both_join();
  EXPECT_LT(resident_bytes(), memory + (std::size_t{10} << 20));
  EXPECT_LT(leader_cpu_, 5 * kSecond);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(Gathering, WithoutADescriptorLeftItNeitherSpinsNorFails) {
  start();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  std::vector<Fd> strangers;
  for (int i = 0; i < 4; ++i) strangers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit none = before;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(static_cast<std::uint16_t>(port_));
  inet_pton(AF_INET, kLoopback, &to.sin_addr);
  for (const Fd& s : strangers) EXPECT_EQ(::connect(s.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  fsdp::sleep_until(fsdp::steady_now() + kSecond);
  setrlimit(RLIMIT_NOFILE, &before);
  both_join();
  EXPECT_LT(leader_cpu_, kSecond / 2) << "it spins";
}

TEST_F(Gathering, ALineWithoutAnEndAndLinesWithoutContentCostNothing) {
  start();
  const std::size_t memory = resident_bytes();
  for (const std::string& piece : {std::string(1 << 20, 'x'), std::string(1 << 20, '\n')}) {
    const Fd stranger = connect();
    for (int i = 0; i < 64; ++i)
      if (send(stranger.get(), piece.data(), piece.size(), MSG_NOSIGNAL) <= 0) break;  // it has closed
  }
  EXPECT_LT(resident_bytes(), memory + (std::size_t{10} << 20));
  both_join();
  EXPECT_LT(leader_cpu_, kSecond);
}

TEST_F(Gathering, AStrangerThatRepeatsWhatARankSaidIsNotLetIn) {
  start();
  // Between a rank and the leader, it hears everything.
  const Listener between = try_to_listen(kLoopback, 0);
  std::string heard;
  std::thread stranger([&] {
    for (int tries = 0; tries < 200; ++tries) {
      const Fd rank(accept(between.fd.get(), nullptr, nullptr));
      if (!rank.open()) {
        fsdp::sleep_until(fsdp::steady_now() + kSecond / 50);
        continue;
      }
      const Fd leader = connect();
      char buffer[4096];
      for (int turn = 0; turn < 2; ++turn) {  // knock, challenge, proof, welcome
        const ssize_t n = recv(rank.get(), buffer, sizeof buffer, 0);
        if (n <= 0) return;
        heard.append(buffer, static_cast<std::size_t>(n));
        send(leader.get(), buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL);
        pollfd p{leader.get(), POLLIN, 0};
        poll(&p, 1, 5000);
        const ssize_t m = recv(leader.get(), buffer, sizeof buffer, 0);
        if (m <= 0) return;
        send(rank.get(), buffer, static_cast<std::size_t>(m), MSG_NOSIGNAL);
      }
      // It holds both ends of a proven connection, and cannot speak on it.
      const std::string forged = to_json_line(Hello{}) + "\n";
      send(leader.get(), forged.data(), forged.size(), MSG_NOSIGNAL);
      pollfd p{leader.get(), POLLIN, 0};
      poll(&p, 1, 5000);
      EXPECT_LE(recv(leader.get(), buffer, sizeof buffer, 0), 0) << "the leader takes a line without a seal";
      return;
    }
  });
  LineSocket rank =
      meet_leader({kLoopback, {between.port}, kRun}, kSecret, fsdp::steady_now() + 10 * kSecond, [] { return true; });
  stranger.join();
  EXPECT_THAT(heard, HasSubstr("proof"));
  const Fd again = connect();  // what it heard, again
  send(again.get(), heard.data(), heard.size(), MSG_NOSIGNAL);
  both_join();
}

TEST(MeetLeader, AStrangerInTheLeadersPlaceIsNotFollowed) {
  const Listener stranger = try_to_listen(kLoopback, 0);
  std::thread answers([&] {
    for (int i = 0; i < 100; ++i) {
      const Fd rank(accept(stranger.fd.get(), nullptr, nullptr));
      const std::string says =
          R"({"challenge":")" + random_hex() + "\"}\n" + R"({"welcome":")" + random_hex() + "\"}\n";
      if (rank.open()) send(rank.get(), says.data(), says.size(), MSG_NOSIGNAL);
      fsdp::sleep_until(fsdp::steady_now() + kSecond / 100);
    }
  });
  try {
    meet_leader({kLoopback, {stranger.port}, kRun}, kSecret, fsdp::steady_now() + kSecond / 2, [] { return true; });
    ADD_FAILURE() << "it is followed";
  } catch (const fsdp::CommError& e) {
    EXPECT_THAT(e.what(), HasSubstr("did not prove that it knows this run's secret"));
  }
  answers.join();
}

TEST(MeetLeader, ASilentLeaderIsGivenUpAtTheDeadline) {
  const Listener silent = try_to_listen(kLoopback, 0);  // as a stopped process: its system takes the connection
  const fsdp::Nanos begin = fsdp::steady_now();
  EXPECT_THROW(
      meet_leader({kLoopback, {silent.port}, kRun}, kSecret, fsdp::steady_now() + kSecond / 2, [] { return true; }),
      fsdp::CommError);
  EXPECT_LT(fsdp::steady_now() - begin, 3 * kSecond);
}

TEST(Meeting, APortOfTorchrunsStoreIsLeftToItAndOursFollowsFromTheSecret) {
  RankPlace p{"torchrun", 0, 2, 0, 2, "host0", 29'500};
  p.one_host = true;
  EXPECT_EQ(meeting_of(p, kSecret).ports, std::vector<int>{29'500});
  EXPECT_EQ(meeting_of(p, kSecret).address, kLoopback);
  p.store_is_served = true;
  const std::vector<int> ports = meeting_of(p, kSecret).ports;
  EXPECT_GT(ports.size(), 1u);
  EXPECT_EQ(ports, meeting_of(p, kSecret).ports);
  EXPECT_NE(ports, meeting_of(p, "another secret, as long").ports);
  p.run = "another run";
  EXPECT_NE(ports, meeting_of(p, kSecret).ports);
}

TEST(Meeting, ThePortThatIsTakenIsNamedWithItsVariable) {
  const Listener taken = try_to_listen(kLoopback, 0);
  RankPlace p{"torchrun", 0, 2, 0, 2, kLoopback, taken.port};
  try {
    listen_at(meeting_of(p, kSecret), p);
    ADD_FAILURE() << "it listens";
  } catch (const fsdp::EnvironmentError& e) {
    EXPECT_THAT(e.what(), HasSubstr("MASTER_PORT"));
  }
}

}  // namespace
}  // namespace harness
