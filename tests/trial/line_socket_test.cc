#include "harness/trial/line_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace harness {
namespace {
using testing::ElementsAre;
using testing::IsEmpty;

class LineSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    a_ = LineSocket(Fd(pair[0])), b_ = LineSocket(Fd(pair[1]));
  }
  LineSocket a_, b_;
};

TEST_F(LineSocketTest, LinesComeOneByOneAndAllAtOnce) {
  a_.send("one");
  a_.send("two");
  a_.send("three");
  std::string line;
  ASSERT_TRUE(b_.next(line, 0));
  EXPECT_EQ(line, "one");
  EXPECT_THAT(b_.receive(), ElementsAre("two", "three"));
}

TEST_F(LineSocketTest, APeerThatClosesIsSeenBehindItsLastLine) {
  a_.send("last");
  a_.close();
  EXPECT_THAT(b_.receive(), ElementsAre("last"));
  EXPECT_FALSE(b_.open());
}

TEST_F(LineSocketTest, NothingFollowsALineOfWhichAPartWasSent) {
  a_.send(std::string(16 << 20, 'x'), 0);  // more than a socket holds, and nobody reads
  EXPECT_FALSE(a_.open());
  a_.send("the next");
  EXPECT_THAT(b_.receive(), IsEmpty());
  EXPECT_FALSE(b_.open());
}

TEST_F(LineSocketTest, AFullSocketLosesWholeLinesOnly) {
  const std::string line(1023, 'x');
  for (int i = 0; i < 16 << 10 && a_.open(); ++i) a_.send(line, 0);
  for (const std::string& l : b_.receive()) EXPECT_EQ(l, line);
}

}  // namespace
}  // namespace harness
