#include "harness/trial/rank_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "fsdp/core/errors.h"
#include "harness/trial/rank_progress.h"
#include "tests/testing/time.h"

namespace harness {
namespace {

// The launcher's end, by hand.
class RankLinkProtocol : public testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    launcher_ = pair[0];
    link_.emplace(pair[1]);
  }
  void TearDown() override {
    link_.reset();
    close(launcher_);
  }
  void say(const std::string& line) {
    const std::string text = line + "\n";
    ASSERT_EQ(write(launcher_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  RankEvent hear() {
    std::string line;
    char c;
    while (read(launcher_, &c, 1) == 1 && c != '\n') line += c;
    return rank_event_from_json(line);
  }

  int launcher_ = -1;
  std::optional<RankLink> link_;
};

TEST_F(RankLinkProtocol, CommandsComeInOrderAndReportIsAnsweredInBetween) {
  say("the job");
  say(to_json_line(RankCommand::kRepeat));
  say(to_json_line(RankCommand::kReport));
  say(to_json_line(RankCommand::kTrace));
  EXPECT_EQ(link_->read_first_line(), "the job");
  link_->start({.where = [] { return std::string("here"); }, .on_closed = [] {}});
  const RankEvent e = hear();  // nobody has asked for a command yet
  EXPECT_EQ(e.kind, RankEvent::Kind::kWhere);
  EXPECT_EQ(e.where, "here");
  EXPECT_EQ(link_->next(), RankCommand::kRepeat);
  EXPECT_EQ(link_->next(), RankCommand::kTrace);
}

TEST_F(RankLinkProtocol, AClosedLauncherIsNoticedByTheThread) {
  std::promise<void> closed;
  link_->start({.where = [] { return std::string(); }, .on_closed = [&] { closed.set_value(); }});
  shutdown(launcher_, SHUT_RDWR);
  EXPECT_EQ(closed.get_future().wait_for(std::chrono::nanoseconds(testing_support::kPatience)),
            std::future_status::ready);
  EXPECT_THROW(link_->next(), fsdp::CommError);
  link_->send({});  // is lost, quietly
}

TEST_F(RankLinkProtocol, ALauncherThatSendsNoJobIsAnError) {
  shutdown(launcher_, SHUT_RDWR);
  EXPECT_THROW(link_->read_first_line(), fsdp::CommError);
}

TEST(RankProgress, SaysPhaseStepAndLastCollectiveByName) {
  RankProgress p;
  EXPECT_EQ(p.where(), "building the model; no collective yet");
  p.set_unit_names({"root", "model.layers.0"});
  p.set_phase(RankProgress::Phase::kRepetition, 2);
  p.set_step(3);
  p.note_collective(fsdp::CollectiveKind::kReduceScatter, 1, fsdp::Pass::kBackward);
  EXPECT_EQ(p.where(), "repetition 2, step 3; last collective reduce_scatter of model.layers.0, backward");
  p.set_phase(RankProgress::Phase::kTraced);
  p.note_collective(fsdp::CollectiveKind::kAllGather, 7, fsdp::Pass::kForward);
  EXPECT_EQ(p.where(), "traced repetition, step 0; last collective all_gather of unit 7, forward");
}

}  // namespace
}  // namespace harness
