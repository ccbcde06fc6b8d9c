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

TEST_F(LineSocketTest, ALongerLineThanTheLimitClosesAndKeepsNothing) {
  b_.limit(100);
  a_.send(std::string(100, 'x'));
  std::string line;
  ASSERT_TRUE(b_.next(line, 0));
  a_.send(std::string(101, 'x'));
  EXPECT_FALSE(b_.next(line, 0));
  EXPECT_FALSE(b_.open());
}

TEST_F(LineSocketTest, SealedLinesComeInOrderAndOnce) {
  a_.send("open");
  a_.seal("key of a", "key of b");
  a_.send("one");
  a_.send("two");
  std::string line;
  ASSERT_TRUE(b_.next(line, 0));
  b_.seal("key of b", "key of a");  // what has come by then is sealed already
  EXPECT_THAT(b_.receive(), ElementsAre("one", "two"));
  b_.send("three");
  EXPECT_THAT(a_.receive(), ElementsAre("three"));
}

TEST_F(LineSocketTest, ALineThatIsNotSealedOrUnderAnotherKeyOrRepeatedCloses) {
  std::string sealed;
  a_.seal("key of a", "key of b");
  a_.send("one");
  ASSERT_TRUE(b_.next(sealed, 0));  // as it travels
  for (const std::vector<std::string>& lines :
       {std::vector<std::string>{"one"}, {"0 one"}, {sealed + " "}, {sealed, sealed}}) {
    SetUp();
    b_.seal("key of b", "key of a");
    for (const std::string& l : lines) a_.send(l);
    EXPECT_EQ(b_.receive().size(), lines.size() - 1);
    EXPECT_FALSE(b_.open());
  }
}

}  // namespace
}  // namespace harness
