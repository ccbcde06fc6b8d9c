#include "harness/cli/progress_line.h"

#include <gtest/gtest.h>

namespace harness::cli {
namespace {

SweepProgress some_progress() {
  SweepProgress p;
  p.total = 12;
  p.finished = 5;
  p.ran = 4;
  p.spent = 40'000'000'000;
  p.by_status = {{Status::kOk, 4}, {Status::kOom, 1}};
  return p;
}

SweepCase some_case() {
  SweepCase c;
  c.axes = {{"wrap", "block"}, {"backward_prefetch", "pre"}};
  return c;
}

TEST(ProgressLine, ARunningCaseShowsCountsAndTheTimeThatIsLeft) {
  EXPECT_EQ(running_line(some_progress(), some_case()),
            "[ 6/12] wrap=block, backward_prefetch=pre ...   4 ok, 1 oom   about 70 s left");
  SweepProgress p = some_progress();
  p.spent *= 60;
  EXPECT_EQ(running_line(p, some_case()),
            "[ 6/12] wrap=block, backward_prefetch=pre ...   4 ok, 1 oom   about 70 min left");
  p.spent *= 60;
  EXPECT_EQ(running_line(p, some_case()),
            "[ 6/12] wrap=block, backward_prefetch=pre ...   4 ok, 1 oom   about 70.0 h left");
  SweepProgress nothing;
  nothing.total = 3;
  EXPECT_EQ(running_line(nothing, some_case()), "[1/3] wrap=block, backward_prefetch=pre ...");
}

TEST(ProgressLine, AFinishedCaseShowsItsResultOrItsReason) {
  CaseRecord r;
  r.status = Status::kOk;
  r.step_ns = 12'410'000;
  r.peak_bytes = 4404019;
  EXPECT_EQ(finished_line(some_progress(), some_case(), r),
            "[ 5/12] wrap=block, backward_prefetch=pre   ok   12.41 ms   4.20 MiB");
  CaseRecord bad;
  bad.status = Status::kCrashed;
  bad.reason = "rank 1 was ended by signal 11";
  EXPECT_EQ(finished_line(some_progress(), some_case(), bad),
            "[ 5/12] wrap=block, backward_prefetch=pre   crashed   rank 1 was ended by signal 11");
}

}  // namespace
}  // namespace harness::cli
